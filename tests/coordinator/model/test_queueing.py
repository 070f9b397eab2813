"""Who is granted and who waits, at the ledger's desk: bids, overtaking, unknown sizes, arming."""

import pytest

from rampmeter.core.messages import Grant, WaitReason
from support.desk import Desk, Talker

T = 1000.0
CALM = {"mtbf_s": 360_000.0}
"""Its own period is 849 s: a job like this is overdue for a long time before it starves."""


def on_line(job: Talker, now_s: float) -> None:
    """The writer's renewal is held: it can be told at once."""
    rate = job.desk.rates(now_s)[int(job.uid, 16)]
    job.renew(now_s, held=rate)
    if job.answer is not None:
        job.renew(now_s, held=rate)
    assert job.answer is None


def reason_of(job: Talker, now_s: float) -> WaitReason | None:
    """Why the job waits, as people see it."""
    return next(view.wait_reason for view in job.desk.ledger.job_views(now_s) if view.job_uid == job.uid)


def is_granted(job: Talker) -> bool:
    return isinstance(job.answer, Grant)


def test_the_highest_bid_is_served_first() -> None:
    """The older work, whoever asked first."""
    desk = Desk()
    holder, young, old = desk.writer(1, T), desk.known(2, T, **CALM), desk.known(3, T, **CALM)
    young.ask(T, age_s=900.0, ready_in_s=0.0)
    old.ask(T + 1, age_s=950.0, ready_in_s=0.0)
    holder.release(T + 2)
    assert is_granted(old)
    assert not is_granted(young)


@pytest.mark.parametrize(("room_after_s", "served"), [(10, 2), (24, 3)])
def test_bids_grow_while_jobs_wait(room_after_s: int, served: int) -> None:
    """The large job bids nothing at first, less after 10 s and more after 24 s; the highest bid is the live price."""
    desk = Desk()
    holder = desk.writer(1, T)
    small = desk.known(2, T, num_gpus=1, num_bytes=2000, mtbf_s=3600.0, interval_min_s=3000.0)
    large = desk.known(3, T, num_gpus=64, num_bytes=10_000, mtbf_s=8000.0, interval_min_s=3000.0)
    small.ask(T, age_s=120.0, ready_in_s=0.0)
    large.ask(T, age_s=120.0, ready_in_s=0.0)
    assert desk.ledger.pool_view(T).live_price_gpu_s_per_byte == pytest.approx((2.0 - 1.0) / 2000)
    for later_s in range(1, room_after_s):
        holder.renew(T + later_s, held=1000)
    holder.release(T + room_after_s)
    assert [job.uid for job in (small, large) if is_granted(job)] == [f"{served:032x}"]


def test_an_old_attempts_age_is_no_claim_of_the_new_one() -> None:
    """The new attempt has lost that work already; only what it has done itself counts."""
    desk = Desk()
    holder, before, other = desk.writer(1, T), desk.known(2, T, **CALM), desk.known(3, T, **CALM)
    before.ask(T, age_s=1000.0, ready_in_s=0.0)
    newer = before.next_attempt()
    newer.register(T + 1)
    newer.heartbeat(T + 1)
    newer.heartbeat(T + 1)
    newer.ask(T + 2, age_s=10.0, ready_in_s=0.0)
    other.ask(T + 3, age_s=900.0, ready_in_s=0.0)
    holder.release(T + 4)
    assert is_granted(other)
    assert not is_granted(newer)


@pytest.mark.parametrize(("age_s", "passed"), [(900.0, True), (1600.0, True), (1750.0, False)])
def test_others_pass_a_head_that_does_not_fit_until_it_starves(age_s: float, *, passed: bool) -> None:
    """50 of 1000 are too little for it and enough for a smaller one; from 2 T on (1697 s) nobody goes before it."""
    desk = Desk()
    holder = desk.writer(1, T, max_bytes_per_s=950)
    head, small = desk.known(2, T, **CALM), desk.known(3, T, num_bytes=10**9, **CALM)
    head.ask(T, age_s=age_s, ready_in_s=0.0)
    small.ask(T, age_s=850.0, ready_in_s=0.0, max_bytes_per_s=500)
    assert is_granted(small) is passed
    holder.release(T + 1)
    assert is_granted(head)


def test_nobody_passes_a_starving_head_however_high_its_bid() -> None:
    """The other bids more for a byte; it starts when the head has started."""
    desk = Desk()
    holder = desk.writer(1, T, max_bytes_per_s=950)
    head, dear = desk.known(2, T, num_bytes=10**9, **CALM), desk.known(3, T, num_gpus=4096, **CALM)
    head.ask(T, age_s=1e6, ready_in_s=0.0)
    dear.ask(T, age_s=1e5, ready_in_s=0.0, max_bytes_per_s=50)
    assert not is_granted(dear)
    holder.release(T + 1)
    assert is_granted(head)


def test_a_lapsed_save_has_its_place_again_when_it_goes_on() -> None:
    """The one that was granted first comes first, though it asks last."""
    desk = Desk()
    first, second = desk.known(1, T), desk.known(2, T)
    first.ask(T, ready_in_s=0.0, max_bytes_per_s=600)
    second.ask(T + 1, ready_in_s=0.0, max_bytes_per_s=600)
    assert desk.rates(T + 1) == {1: 600, 2: 400}
    desk.tick(T + 11)
    second.ask(T + 12, started=True, max_bytes_per_s=600)
    second.renew(T + 12, held=600)
    second.renew(T + 12, held=600)
    first.ask(T + 13, started=True, max_bytes_per_s=600)
    second.hear()
    second.renew(T + 13, held=400)
    first.renew(T + 13, held=400)
    assert desk.rates(T + 13) == {1: 600, 2: 400}


# -- unknown sizes -------------------------------------------------------------------------------------------------


def test_a_save_of_unknown_size_comes_last() -> None:
    """Behind one that has hardly anything to lose."""
    desk = Desk()
    holder = desk.writer(1, T)
    unknown, young = desk.known(2, T, num_bytes=None, **CALM), desk.known(3, T, **CALM)
    unknown.ask(T, age_s=1500.0, ready_in_s=0.0)
    young.ask(T + 1, age_s=1.0, ready_in_s=0.0)
    assert reason_of(unknown, T + 1) is WaitReason.SIZE_UNKNOWN
    holder.release(T + 2)
    assert is_granted(young)
    assert not is_granted(unknown)


def test_a_save_of_unknown_size_gets_a_tenth_while_others_want_the_room() -> None:
    """It is lowered as soon as another asks, stays there while that one writes, and has everything again after it."""
    desk = Desk()
    other = desk.known(2, T)
    unknown = desk.writer(1, T, num_bytes=None)
    on_line(unknown, T)
    other.ask(T + 1, ready_in_s=0.0)
    assert unknown.hear().bytes_per_s == 100
    other.hear()
    unknown.renew(T + 1.1, held=100)
    other.renew(T + 1.2, held=0)
    assert desk.rates(T + 1.2) == {1: 100, 2: 900}
    other.hear()
    for later_s in range(2, 8):
        unknown.renew(T + later_s, held=100, done_bytes=1000 + 100 * later_s)
        other.renew(T + later_s, held=900, done_bytes=900 * (later_s - 1))
        assert desk.rates(T + later_s) == {1: 100, 2: 900}
        other.hear()
    other.release(T + 8)
    unknown.renew(T + 8.1, held=100, done_bytes=1810)
    assert desk.rates(T + 8.1) == {1: 1000}


def test_two_saves_of_unknown_size_do_not_hold_each_other_down() -> None:
    """Nobody of known size wants the room: the first has it, the second waits."""
    desk = Desk()
    second, first = desk.known(2, T, num_bytes=None), desk.writer(1, T, num_bytes=None)
    on_line(first, T)
    second.ask(T, ready_in_s=0.0)
    assert first.answer is None
    assert desk.rates(T) == {1: 1000}


def test_a_save_of_unknown_size_has_an_idle_pool_for_itself() -> None:
    """Nobody else wants it."""
    desk = Desk()
    desk.writer(1, T, num_bytes=None)
    assert desk.rates(T) == {1: 1000}


# -- arming --------------------------------------------------------------------------------------------------------


def test_an_idle_pool_arms_one_of_many() -> None:
    """The others keep on training: who is armed takes a snapshot, and it would only grow old."""
    desk = Desk()
    jobs = [desk.known(number, T) for number in range(1, 7)]
    for job in jobs:
        job.ask(T, ready_in_s=30.0, num_bytes=30_000)
    assert [is_granted(job) for job in jobs] == [True] + [False] * 5


def test_the_next_one_is_armed_as_its_room_appears() -> None:
    """The writer ends in 20 s, the waiter needs 12: a timer of the pool's own arms it 13 s ahead, not before."""
    desk = Desk()
    waiter = desk.known(2, T)
    holder = desk.writer(1, T, num_bytes=20_000)
    on_line(holder, T)
    waiter.ask(T, ready_in_s=12.0)
    while (wake_s := desk.ledger.wake_at_s()) is not None and wake_s <= T + 10.0 and not is_granted(waiter):
        if wake_s >= T + 5.0 and holder.answer is not None:
            holder.hear()
            holder.renew(wake_s, held=1000, done_bytes=int(1000 * (wake_s - T)), throttled_s=wake_s - T)
        desk.tick(wake_s)
        last_s = wake_s
    assert is_granted(waiter)
    assert last_s == pytest.approx(T + 7.0, abs=0.2)
    assert desk.rates(last_s) == {1: 1000, 2: 0}


def test_who_has_its_first_byte_in_hand_writes_during_the_lead_of_another() -> None:
    """An armed lease holds no bandwidth."""
    desk = Desk()
    slow, quick = desk.known(1, T), desk.known(2, T)
    slow.ask(T, ready_in_s=90.0)
    quick.ask(T + 1, ready_in_s=0.0)
    assert desk.rates(T + 1) == {1: 0, 2: 1000}


def test_a_short_lead_passes_a_long_one_that_waits() -> None:
    """One is armed for 90 s, the next in order, as slow, has no room behind it: the storage is free until then."""
    desk = Desk()
    armed, slow, quick = desk.known(1, T), desk.known(2, T), desk.known(3, T)
    armed.ask(T, ready_in_s=90.0, num_bytes=10**6)
    slow.ask(T, ready_in_s=90.0, age_s=150.0)
    quick.ask(T + 1, ready_in_s=0.0, age_s=90.0)
    assert not is_granted(slow)
    assert desk.rates(T + 1) == {1: 0, 3: 1000}


def test_who_is_armed_and_late_blocks_nobody() -> None:
    """Its first byte was forecast for 5 s; from then on others are armed beside it."""
    desk = Desk()
    late, other = desk.known(1, T), desk.known(2, T)
    late.ask(T, ready_in_s=5.0, num_bytes=10**6)
    other.ask(T + 1, ready_in_s=6.0)
    assert is_granted(late)
    assert not is_granted(other)
    late.renew(T + 1)
    for later_s in (3.0, 5.1, 6.2):
        late.renew(T + later_s)
    assert is_granted(other)


@pytest.mark.parametrize(("num_bytes", "is_let_in"), [(1000, True), (400, False)])
def test_short_writes_are_let_in_a_quarter_of_their_length_ahead(num_bytes: int, is_let_in: bool) -> None:
    """Room is there in 0.2 s: in time for a write of 1 s, too early for one of 0.4 s, whose snapshot would wait."""
    desk = Desk()
    desk.writer(1, T, num_bytes=10_000).renew(T, held=1000)
    waiter = desk.known(2, T)
    waiter.ask(T + 9.8, ready_in_s=0.0, num_bytes=num_bytes)
    assert is_granted(waiter) is is_let_in


def test_no_more_are_let_in_than_keep_the_storage_busy() -> None:
    """A writer that is overdue, and 50 small saves in hand: one is let in as a reserve, the snapshots of the others
    would only get older."""
    desk = Desk()
    desk.writer(1, T, num_bytes=1000).renew(T, held=1000)
    waiters = [desk.known(number, T) for number in range(2, 52)]
    for waiter in waiters:
        waiter.ask(T + 5, ready_in_s=0.0, num_bytes=1000, max_bytes_per_s=20)
    assert sum(map(is_granted, waiters)) == 1


def test_no_more_are_let_in_at_once() -> None:
    """Twenty wait for a writer that ends in a second: eight are let in to be there when it does."""
    desk = Desk()
    desk.writer(1, T, num_bytes=10_000).renew(T, held=1000)
    waiters = [desk.known(number, T) for number in range(2, 22)]
    for waiter in waiters:
        waiter.ask(T + 1, ready_in_s=0.0, num_bytes=1000, max_bytes_per_s=40)
    desk.tick(T + 8.9)
    assert sum(map(is_granted, waiters)) == 0
    desk.tick(T + 9.1)
    assert sum(map(is_granted, waiters)) == 8


def test_all_that_fit_start_in_one_step() -> None:
    """Twenty small saves wait for one that has all: when it ends every one of them writes."""
    desk = Desk()
    holder = desk.writer(1, T, num_bytes=10**4)
    waiters = [desk.known(number, T) for number in range(2, 22)]
    for waiter in waiters:
        waiter.ask(T + 1, ready_in_s=0.0, num_bytes=100, max_bytes_per_s=40)
    holder.release(T + 2)
    assert desk.rates(T + 2) == dict.fromkeys(range(2, 22), 40)
