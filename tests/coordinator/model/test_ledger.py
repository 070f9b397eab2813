"""Who may speak, what is said again, and what a refusal leaves behind: the ledger's one entry point."""

import pytest

from rampmeter.core.messages import Fence, Gone, Grant, Noted, RefusalReason, Wait
from rampmeter_coordinator.model.commands import Priced, Refusal
from support.desk import POOL, Desk, Talker

T = 1000.0


def snapshot(desk: Desk, now_s: float) -> tuple[object, ...]:
    """All that can be seen of a ledger."""
    ledger = desk.ledger
    views = ledger.pool_view(now_s), ledger.job_views(now_s), ledger.lease_views(now_s)
    return *views, ledger.totals, ledger.timeline(), ledger.wake_at_s()


def refused_for(job: Talker, reason: RefusalReason, status: int) -> Refusal:
    """The last answer is a refusal for this reason."""
    assert isinstance(job.answer, Refusal), job.answer
    assert (job.answer.reason, job.answer.status) == (reason, status)
    return job.answer


def test_an_unknown_job_must_register_first() -> None:
    """404: whoever is unknown is told to register."""
    desk = Desk()
    job = desk.job(1)
    job.heartbeat(T)
    refused_for(job, RefusalReason.UNKNOWN_JOB, 404)


def test_a_newer_attempt_must_register_first() -> None:
    """404 for a number that nobody has claimed here."""
    desk = Desk()
    newer = desk.known(1, T).next_attempt()
    newer.ask(T)
    refused_for(newer, RefusalReason.UNKNOWN_JOB, 404)


def test_an_attempt_that_applied_unknown_answers_must_register_first() -> None:
    """An `ack` of an answer that this memory never gave means that memory was lost."""
    desk = Desk()
    job = desk.known(1, T)
    job.ack, job.seq = 40, 40
    job.heartbeat(T)
    refused_for(job, RefusalReason.UNKNOWN_JOB, 404)
    job.register(T)
    assert isinstance(job.last, Noted)
    job.heartbeat(T)
    assert isinstance(job.last, Noted)


def test_a_stale_attempt_is_told_the_stored_one() -> None:
    """409 with the number to go beyond; also for a registration."""
    desk = Desk()
    old = desk.known(1, T)
    new = old.next_attempt()
    new.register(T + 1)
    for speak in (old.heartbeat, old.ask, old.register):
        speak(T + 2)
        assert refused_for(old, RefusalReason.STALE_ATTEMPT, 409).stored_attempt == 2


def test_the_same_attempt_with_another_claim_is_stale() -> None:
    """Two processes that claimed the same number are told apart by the nonce of the claim."""
    desk = Desk()
    job = desk.known(1, T)
    job.register(T + 1, claim="f" * 32)
    assert refused_for(job, RefusalReason.STALE_ATTEMPT, 409).stored_attempt == 1


def test_a_lease_of_another_job_is_refused() -> None:
    """409 for ready, renew and release with a fence that somebody else holds."""
    desk = Desk()
    holder, thief = desk.writer(1, T), desk.known(2, T)
    thief.fence = holder.fence
    for speak in (thief.ready, thief.renew, thief.release):
        speak(T + 1)
        assert refused_for(thief, RefusalReason.FOREIGN_LEASE, 409).field == "fence"
    assert desk.rates(T + 1) == {1: 1000}


def test_a_lease_that_is_no_more_is_gone() -> None:
    """A fence that nobody holds is answered, not refused: the agent asks again with `started`."""
    desk = Desk()
    job = desk.known(1, T)
    job.fence = Fence(epoch=1, counter=99)
    job.renew(T)
    assert isinstance(job.last, Gone)


def test_an_ack_of_the_future_is_refused() -> None:
    """422: `ack` is the number of an earlier request."""
    desk = Desk()
    job = desk.known(1, T)
    job.ack = job.seq + 1
    job.heartbeat(T)
    assert refused_for(job, RefusalReason.BAD_REQUEST, 422).field == "ack"


def test_a_refused_request_changes_nothing() -> None:
    """Nothing to store, nothing to see: not for the one who asked and not for others."""
    desk = Desk()
    holder, job = desk.writer(1, T), desk.known(2, T)
    new = desk.known(3, T).next_attempt()
    new.register(T)
    old, strange = desk.job(3), desk.job(4)
    old.seq = 50
    desk.tick(T + 1)
    before = snapshot(desk, T + 1)
    job.fence = holder.fence
    for speak in (job.renew, old.heartbeat, old.register, strange.heartbeat, strange.ask):
        speak(T + 1)
        assert isinstance(desk.replies.popitem()[1], Refusal)
        assert desk.ledger.take_changes().records == {}
    assert snapshot(desk, T + 1) == before


def test_a_refusal_does_not_delay_others() -> None:
    """What became free while nobody spoke is given on also if the next request is refused."""
    desk = Desk()
    desk.writer(1, T)
    waiter = desk.known(2, T)
    waiter.ask(T, ready_in_s=0.0)
    desk.job(9).heartbeat(T + 10)
    assert isinstance(waiter.answer, Grant)


def test_the_last_answer_is_replayed_unchanged() -> None:
    """Same answer, same held_s, same TTL: never a fresh one. The agent counts from its first send."""
    desk = Desk()
    job = desk.writer(1, T)
    answer = job.last
    assert isinstance(answer, Grant)
    for later_s in (1.0, 5.0, 9.0):
        assert job.again(T + later_s) is answer
    assert desk.ledger.lease_views(T + 9)[0].expires_in_s == pytest.approx(1.0)
    desk.tick(T + 10)
    assert job.again(T + 11) is answer
    assert desk.counted(T + 11) == 0


def test_a_replay_is_no_contact() -> None:
    """Sending the same again confirms nothing."""
    desk = Desk()
    job = desk.known(1, T)
    for later_s in (20.0, 40.0, 60.0):
        job.again(T + later_s)
    assert desk.counted(T + 60) > 0


@pytest.mark.parametrize("num_back", [1, 2])
def test_older_numbers_are_ignored(num_back: int) -> None:
    """A late duplicate of an earlier request is refused and changes nothing."""
    desk = Desk()
    job = desk.known(1, T)
    job.seq -= num_back + 1
    job.ack = 0
    job.heartbeat(T + 1)
    refused_for(job, RefusalReason.OLD_SEQ, 409)


def test_a_duplicate_of_a_held_request_waits_on() -> None:
    """The second copy of a held slot request is not answered by itself; both hear the one answer."""
    desk = Desk()
    holder, waiter = desk.writer(1, T), desk.known(2, T)
    assert waiter.ask(T, ready_in_s=0.0) is None
    assert waiter.again(T + 1) is None
    holder.release(T + 2)
    assert isinstance(waiter.answer, Grant)
    assert waiter.answer.held_s == 2.0


def test_a_newer_request_supersedes_the_held_one() -> None:
    """The older one hears 409, the newer one takes its place and keeps its place in the queue."""
    desk = Desk()
    desk.writer(1, T)
    waiter = desk.known(2, T)
    waiter.ask(T)
    first = (waiter.uid, 1, waiter.seq)
    waiter.ask(T + 1)
    refusal = desk.replies[first]
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.status) == (RefusalReason.SUPERSEDED, 409)
    assert waiter.answer is None
    assert desk.ledger.job_views(T + 1)[1].waiting_for_s == 1.0


def test_a_newer_attempt_ends_the_wait_of_the_older() -> None:
    """Its held request is refused as stale, at once."""
    desk = Desk()
    desk.writer(1, T)
    old = desk.known(2, T)
    old.ask(T)
    old.next_attempt().register(T + 1)
    assert refused_for(old, RefusalReason.STALE_ATTEMPT, 409).stored_attempt == 2


def test_only_connected_waiters_are_granted() -> None:
    """Whoever has gone is not granted; its number is spent, since an answer to it would be dead on arrival."""
    desk = Desk()
    holder, waiter = desk.writer(1, T), desk.known(2, T)
    waiter.ask(T, ready_in_s=0.0)
    waiter.hang_up(T + 1)
    holder.release(T + 2)
    assert waiter.answer is None
    waiter.again(T + 3)
    refused_for(waiter, RefusalReason.OLD_SEQ, 409)
    waiter.ask(T + 3, ready_in_s=0.0)
    assert isinstance(waiter.last, Grant)


def test_a_hang_up_of_an_older_request_changes_nothing() -> None:
    """The connection of a superseded request closes after the newer one was taken."""
    desk = Desk()
    desk.writer(1, T)
    waiter = desk.known(2, T)
    waiter.ask(T, ready_in_s=0.0)
    waiter.ask(T + 1, ready_in_s=0.0)
    waiter.seq -= 1
    waiter.hang_up(T + 2)
    assert desk.ledger.pool_view(T + 2).num_waiting == 1
    desk.tick(T + 26)
    waiter.seq += 1
    assert isinstance(waiter.answer, Wait)


def test_finish_is_replayed_and_everything_after_it_is_unknown() -> None:
    """A goodbye whose answer was lost may be said again; nothing else may."""
    desk = Desk()
    job = desk.known(1, T)
    job.finish(T + 1, lost=True)
    assert isinstance(job.again(T + 5), Noted)
    job.heartbeat(T + 6)
    refused_for(job, RefusalReason.UNKNOWN_JOB, 404)


def test_finish_gives_everything_back() -> None:
    """Lease, safe rate and place in the queue: the agent promises to write no more."""
    desk = Desk()
    job, waiter = desk.writer(1, T), desk.known(2, T)
    waiter.ask(T, ready_in_s=0.0)
    job.finish(T + 1)
    assert isinstance(waiter.answer, Grant)
    assert waiter.answer.bytes_per_s == 1000
    assert desk.ledger.pool_view(T + 1).num_jobs == 1


def test_a_finished_attempt_may_register_again() -> None:
    """The same claim, a new number: it is back."""
    desk = Desk()
    job = desk.known(1, T)
    job.finish(T + 1)
    job.register(T + 2)
    assert isinstance(job.last, Noted)
    assert job.last.plan is not None
    assert desk.ledger.pool_view(T + 2).num_jobs == 1


def test_the_pool_is_full_of_living_jobs_only() -> None:
    """503 beyond max_jobs; a finished job makes room."""
    desk = Desk(POOL.__class__(name="pool", capacity_bytes_per_s=1000, max_jobs=2))
    first, _ = desk.known(1, T), desk.known(2, T)
    third = desk.job(3)
    third.register(T)
    refused_for(third, RefusalReason.TOO_MANY_JOBS, 503)
    first.finish(T + 1)
    third.register(T + 2)
    assert isinstance(third.last, Noted)
    assert len(desk.records) == 2


def test_sums_are_up_to_date_before_anybody_is_served() -> None:
    """After a long pause of the coordinator, who has become silent meanwhile counts before any rate is given out."""
    desk = Desk()
    desk.known(1, T)
    writer = desk.writer(2, T + 50)
    writer.renew(T + 50, held=1000)
    writer.renew(T + 51, held=1000)
    desk.tick(T + 79)
    safe = next(view.plan for view in desk.ledger.job_views(T + 79)).safe_bytes_per_s
    assert writer.hear().bytes_per_s == 1000 - safe


def test_to_look_at_a_pool_changes_nothing_that_is_decided() -> None:
    """Not in the last digit, which a replay of the log would show: there nobody looked."""
    answers = []
    for looked_at in (False, True):
        desk = Desk()
        job = desk.job(1, mtbf_s=54.043489521195255)  # five times it, and a fifth of that, is another number
        job.register(0.0)
        desk.apply(Priced(price_gpu_s_per_byte=1.0), 1.0)
        if looked_at:
            desk.ledger.job_views(1.0)
        answers.append(job.heartbeat(2.0, warm_up_s=1.0))
    assert answers[0] == answers[1]
    assert isinstance(answers[0], Noted)
    assert answers[0].plan is not None
