"""Why somebody waits, in the words that people and agents are told, at the ledger's desk."""

from rampmeter.core.messages import Grant, LeaseState, Wait, WaitReason
from rampmeter_coordinator.model.pool import PoolConfig
from support.desk import POOL, Desk, Talker

T = 1000.0


def reason_of(job: Talker, now_s: float) -> WaitReason | None:
    """Why the job waits, as people see it."""
    return next(view.wait_reason for view in job.desk.ledger.job_views(now_s) if view.job_uid == job.uid)


def is_granted(job: Talker) -> bool:
    return isinstance(job.answer, Grant)


def test_a_full_pool_is_the_queue() -> None:
    """And the word is said when the hold is over."""
    desk = Desk()
    desk.writer(1, T)
    waiter = desk.known(2, T)
    waiter.ask(T)
    assert reason_of(waiter, T) is WaitReason.QUEUE
    for later_s in range(1, 26):
        desk.tick(T + later_s)
        if desk.rates(T + later_s) == {}:
            break
    assert is_granted(waiter)


def test_max_writers_is_the_reason_where_room_is_left() -> None:
    """One writes at 10 of 1000; there may be one."""
    desk = Desk(PoolConfig(name="pool", capacity_bytes_per_s=1000, utilisation=1.0, max_writers=1))
    waiter = desk.known(2, T)
    desk.writer(1, T, max_bytes_per_s=10)
    waiter.ask(T, ready_in_s=0.0)
    assert reason_of(waiter, T) is WaitReason.MAX_WRITERS


def test_silent_jobs_are_the_reason_where_they_may_use_everything() -> None:
    """All of a budget that was cut since belongs to a job that is silent."""
    desk = Desk()
    desk.known(1, T, num_bytes=80_000)
    safe = desk.ledger.job_views(T)[0].plan.safe_bytes_per_s
    desk.restart(config=PoolConfig(name="pool", capacity_bytes_per_s=safe, utilisation=1.0))
    waiter = desk.known(2, T + 60)
    assert waiter.ask(T + 60, ready_in_s=0.0) is None
    assert reason_of(waiter, T + 60) is WaitReason.SILENT_JOBS


def test_a_fenced_attempt_is_the_reason_while_its_lease_may_be_used() -> None:
    """All of the budget until it must have stopped; then the waiter starts by itself."""
    desk = Desk()
    waiter = desk.known(2, T)
    holder = desk.writer(1, T)
    newer = holder.next_attempt()
    newer.register(T + 1)
    waiter.ask(T + 2, ready_in_s=0.0)
    assert reason_of(waiter, T + 2) is WaitReason.OLD_LEASE
    desk.tick(T + 10)
    assert is_granted(waiter)


def test_whoever_is_left_something_starts_with_it() -> None:
    """Nothing is live, 40 of 1000 are not counted: a job that could use all of it starts with 40."""
    desk = Desk()
    waiter = desk.known(2, T)
    holder = desk.writer(1, T, max_bytes_per_s=960)
    newer = holder.next_attempt()
    newer.register(T + 1)
    newer.heartbeat(T + 1)
    waiter.ask(T + 2, ready_in_s=0.0)
    assert desk.rates(T + 2) == {2: 40}


def test_grace_is_the_reason_after_lost_memory() -> None:
    """Who is armed may get ready; its rate waits for the end of grace."""
    desk = Desk(POOL, grace_until_s=T + 31)
    first, second = desk.known(1, T), desk.known(2, T)
    first.ask(T, ready_in_s=10.0, num_bytes=10**6)
    second.ask(T, ready_in_s=10.0)
    assert first.last.state is LeaseState.ARMED
    assert reason_of(second, T) is WaitReason.GRACE


def test_a_job_out_of_contact_is_asked_to_confirm() -> None:
    """It is sent home at once, so that it can show that it hears us."""
    desk = Desk()
    desk.writer(1, T)
    job = desk.job(2)
    job.register(T, lost=True)
    job.ask(T)
    assert isinstance(job.last, Wait)
    assert (job.last.reason, job.last.retry_after_s, job.last.confirm) == (WaitReason.CONFIRM, 0.0, True)
