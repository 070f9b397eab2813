"""Slots and leases: who is granted, how long, when it is taken back, who keeps a place."""

import random

import pytest

from rampmeter.core.messages import (
    Gone,
    GoneReason,
    Grant,
    Kind,
    LeaseState,
    Outcome,
    RateReason,
    Wait,
    WaitReason,
)
from rampmeter_coordinator.model.commands import Disconnected
from rampmeter_coordinator.model.pool import PoolConfig
from support.desk import POOL, Desk, Talker

T = 1000.0


def test_the_first_ttl_is_short_and_the_next_ones_are_long() -> None:
    """A grant lives 10 s until its first renewal, then 30 s."""
    desk = Desk()
    job = desk.writer(1, T)
    assert job.last.ttl_s == 10.0
    job.renew(T + 1, held=1000)
    assert job.last.ttl_s == 30.0
    assert desk.ledger.lease_views(T + 1)[0].expires_in_s == 30.0


def test_a_renewal_is_held_unless_the_lease_ends_soon() -> None:
    """It is answered at the end of the hold; at once where holding it could cost the lease."""
    desk = Desk()
    job = desk.writer(1, T)
    assert isinstance(job.renew(T + 0.1, held=1000), Grant)
    assert job.renew(T + 0.2, held=1000) is None
    desk.tick(T + 5.1)
    assert job.answer is None
    desk.tick(T + 5.2)
    assert job.hear().held_s == pytest.approx(5.0)


def test_an_idle_pool_arms_and_then_gives_everything() -> None:
    """Rate 0 until the first byte is in hand; then the whole budget, whatever is unknown."""
    desk = Desk()
    job = desk.known(1, T)
    job.ask(T)
    assert (job.last.state, job.last.bytes_per_s, job.last.reason) == (
        LeaseState.ARMED,
        0,
        RateReason.PREPARE,
    )
    job.ready(T + 2)
    assert (job.last.state, job.last.bytes_per_s, job.last.reason) == (
        LeaseState.ACTIVE,
        1000,
        RateReason.FULL,
    )


@pytest.mark.parametrize("most", [None, 0, 1, 10**16])
@pytest.mark.parametrize("in_hand", [True, False])
def test_somebody_always_starts(most: int | None, *, in_hand: bool) -> None:
    """With nothing live the next command grants, with unknown, tiny and huge maximal rates."""
    desk = Desk()
    job = desk.known(1, T)
    job.ask(T, max_bytes_per_s=most, ready_in_s=0.0 if in_hand else 5.0)
    assert isinstance(job.last, Grant)


def test_nobody_starts_below_a_tenth_of_its_wish() -> None:
    """50 left of 1000: not enough for one who could use 600, enough for one who could use 500."""
    desk = Desk()
    desk.writer(1, T, max_bytes_per_s=950)
    big, small = desk.known(2, T), desk.known(3, T)
    assert big.ask(T, max_bytes_per_s=600, ready_in_s=0.0) is None
    assert isinstance(small.ask(T, max_bytes_per_s=500, ready_in_s=0.0), Grant)
    assert desk.rates(T) == {1: 950, 3: 50}


def test_room_is_given_on_in_the_same_step() -> None:
    """A release, an expiry and a goodbye each grant the next one without another command."""
    desk = Desk()
    first = desk.writer(1, T)
    others = [desk.known(number, T) for number in (2, 3, 4)]
    for other in others:
        assert other.ask(T, ready_in_s=0.0) is None
    first.release(T + 1)
    second = others[0]
    assert isinstance(second.hear(), Grant)
    desk.tick(T + 11)
    assert isinstance(others[1].hear(), Grant)
    others[1].finish(T + 12)
    assert isinstance(others[2].hear(), Grant)


def test_first_come_first_served_and_started_before_all() -> None:
    """The order of asking, but a save that has begun goes on first."""
    desk = Desk()
    holder = desk.writer(1, T)
    early, late = desk.known(2, T), desk.known(3, T)
    early.ask(T + 1, ready_in_s=0.0)
    late.ask(T + 2, ready_in_s=0.0, started=True)
    holder.release(T + 3)
    assert isinstance(late.answer, Grant)
    assert early.answer is None


def test_a_place_in_the_queue_survives_a_quick_return() -> None:
    """Whoever comes back within 90 s is still before those who came later."""
    desk = Desk()
    holder = desk.writer(1, T)
    early, late = desk.known(2, T), desk.known(3, T)
    early.ask(T + 1, ready_in_s=0.0)
    late.ask(T + 2, ready_in_s=0.0)
    for now_s in range(2, 26):
        holder.renew(T + now_s, held=1000)
    desk.tick(T + 26.5)
    assert isinstance(early.hear(), Wait)
    assert early.last.retry_after_s == 0.0
    early.ask(T + 26.6, ready_in_s=0.0)
    holder.release(T + 26.8)
    assert isinstance(early.answer, Grant)
    assert late.answer is None


def test_a_place_is_lost_after_a_long_absence() -> None:
    """Whoever stays away for more than 90 s queues up anew."""
    desk = Desk()
    holder = desk.writer(1, T)
    early = desk.known(2, T)
    early.ask(T)
    early.hang_up(T + 1)
    for now_s in range(1, 92):
        holder.renew(T + now_s, held=1000)
    early.heartbeat(T + 91)
    early.ask(T + 91)
    assert desk.ledger.job_views(T + 91)[1].waiting_for_s == 0.0


def test_whoever_is_far_from_its_turn_is_sent_home() -> None:
    """Beyond the first eight, with more than 25 s to go: come back at about half of that."""
    desk = Desk()
    holder = desk.writer(1, T, num_bytes=100_000)
    holder.renew(T, held=1000)
    waiters = [desk.known(number, T, num_bytes=10_000) for number in range(2, 14)]
    for waiter in waiters:
        waiter.ask(T, num_bytes=10_000)
    assert all(waiter.answer is None for waiter in waiters[:8])
    for waiter in waiters[8:]:
        assert isinstance(waiter.last, Wait)
        assert waiter.last.reason is WaitReason.QUEUE
        assert waiter.last.eta_s > 25.0
        assert 0.4 * waiter.last.eta_s <= waiter.last.retry_after_s or waiter.last.retry_after_s >= 48.0
        assert waiter.last.retry_after_s <= 72.0


def test_a_lapsed_lease_is_gone_and_asked_for_again() -> None:
    """A renewal that comes too late: gone, expired; the save goes on with the next grant."""
    desk = Desk()
    job = desk.writer(1, T)
    job.renew(T + 11, held=1000)
    assert isinstance(job.last, Gone)
    assert job.last.reason is GoneReason.EXPIRED
    job.ask(T + 11, started=True)
    assert job.last.state is LeaseState.ACTIVE
    assert desk.ledger.totals.expired == 1


def test_a_lease_whose_grant_was_lost_is_given_back_at_once() -> None:
    """The next request does not confirm the grant: the agent does not hold it, others may have its room."""
    desk = Desk()
    job, waiter = desk.known(1, T), desk.known(2, T)
    assert isinstance(job.ask(T, lost=True, ready_in_s=0.0), Grant)
    waiter.ask(T, ready_in_s=0.0)
    assert waiter.answer is None
    job.heartbeat(T + 1)
    assert isinstance(waiter.answer, Grant)
    assert desk.rates(T + 1) == {2: 1000}


def test_whoever_asks_holds_nothing() -> None:
    """A slot request ends the lease that the ledger still knows of."""
    desk = Desk()
    job = desk.writer(1, T)
    first = job.fence
    job.ask(T + 1, ready_in_s=0.0, started=True)
    assert job.fence > first
    assert desk.counted(T + 1) == 1000


def test_a_small_raise_waits_for_the_end_of_the_hold() -> None:
    """Less than 1 % of the capacity is not worth an early answer."""
    desk = Desk()
    writers = [desk.writer(1, T, max_bytes_per_s=5), desk.writer(2, T)]
    assert desk.rates(T) == {1: 5, 2: 995}
    writers[1].renew(T, held=995)
    writers[1].renew(T, held=995)
    writers[0].release(T + 1)
    assert writers[1].answer is None
    desk.tick(T + 5)
    assert writers[1].hear().bytes_per_s == 1000


def test_a_release_after_the_lapse_still_counts_as_a_save() -> None:
    """The lease ran out at the very end of a save that was then committed."""
    desk = Desk()
    job = desk.writer(1, T)
    desk.tick(T + 10)
    job.release(T + 11, done_bytes=7_000, write_s=10.0)
    assert desk.ledger.totals.committed == 1
    assert desk.ledger.job_views(T + 11)[0].num_bytes == 7_000


def test_a_repeated_release_counts_once() -> None:
    """The same fence with a new number, and the same number again."""
    desk = Desk()
    job = desk.writer(1, T)
    job.release(T + 1)
    job.again(T + 1)
    job.release(T + 2)
    assert desk.ledger.totals.committed == 1


@pytest.mark.parametrize(("outcome", "total"), [(Outcome.FAILED, "failed"), (Outcome.ABORTED, "aborted")])
def test_how_a_save_ended_is_counted(outcome: Outcome, total: str) -> None:
    """Failed and aborted saves have totals of their own."""
    desk = Desk()
    desk.writer(1, T).release(T + 1, outcome)
    assert getattr(desk.ledger.totals, total) == 1
    assert desk.ledger.totals.committed == 0


def test_max_writers_holds() -> None:
    """Room or not, one at a time where the operator says so."""
    desk = Desk(PoolConfig(name="pool", capacity_bytes_per_s=1000, utilisation=1.0, max_writers=1))
    first = desk.writer(1, T, max_bytes_per_s=10)
    second = desk.known(2, T)
    assert second.ask(T, max_bytes_per_s=10, ready_in_s=0.0) is None
    first.release(T + 1)
    assert isinstance(second.answer, Grant)


def test_reads_are_leased_like_writes() -> None:
    """The kind of a slot travels with the lease."""
    desk = Desk()
    job = desk.known(1, T)
    job.ask(T, kind=Kind.READ, ready_in_s=0.0)
    assert desk.ledger.lease_views(T)[0].kind is Kind.READ


@pytest.mark.parametrize("seed", range(20))
def test_nothing_starves_and_the_budget_holds_in_any_order(seed: int) -> None:
    """Random saves of ten jobs, perfect network: never above the budget, everybody saves, fences grow."""
    rng = random.Random(seed)
    desk = Desk(POOL)
    jobs = [desk.known(number, T) for number in range(10)]
    saved = dict.fromkeys(range(10), 0)
    fences = []
    now_s = T
    for _ in range(600):
        now_s += rng.uniform(0.1, 2.0)
        number = rng.randrange(10)
        _next_word(jobs[number], rng, now_s, saved, number, fences)
        assert sum(desk.rates(now_s).values()) <= 1000
    assert min(saved.values()) >= 1
    assert fences == sorted(fences)


def _next_word(
    job: Talker, rng: random.Random, now_s: float, saved: dict[int, int], number: int, fences: list[object]
) -> None:
    before = job.fence
    answer = job.hear()
    if isinstance(answer, Grant) and answer.state is LeaseState.ACTIVE and rng.random() < 0.5:
        job.release(now_s)
        saved[number] += 1
    elif isinstance(answer, Grant) and answer.state is LeaseState.ARMED:
        job.ready(now_s)
    elif isinstance(answer, Grant):
        job.renew(now_s, held=answer.bytes_per_s)
    elif answer is not None:
        job.ask(now_s, max_bytes_per_s=rng.choice([None, 50, 400]), ready_in_s=rng.choice([0.0, 3.0]))
    if (
        isinstance(job.last, Grant)
        and job.fence != before
        and job.fence.counter > (fences[-1].counter if fences else 0)
    ):
        fences.append(job.fence)


def test_a_job_that_died_in_the_queue_waits_no_more() -> None:
    """Its request is gone and none has come for as long as a place is kept: people and alerts see no waiter."""
    desk = Desk()
    desk.writer(1, T)
    waiter = desk.known(2, T)
    waiter.ask(T)
    desk.apply(Disconnected(job_uid=waiter.uid, attempt=1, seq=waiter.seq), T + 1)
    assert desk.ledger.pool_view(T + 90).num_waiting == 1
    assert desk.ledger.pool_view(T + 91).num_waiting == 0
    assert [view.waiting_for_s for view in desk.ledger.job_views(T + 91)] == [None, None]
