"""The rules by which a pool's cap is learned, one by one."""

import itertools

import pytest

from rampmeter_coordinator.model.capacity import Capacity, Report
from support.capacity_pool import CEILING, RENEWAL_S, Pool, fallen, report


@pytest.fixture
def pool() -> Pool:
    return Pool()


def test_it_starts_at_the_ceiling_and_has_nothing_to_do(pool: Pool) -> None:
    """Until storage is slow the operator's word holds."""
    assert pool.capacity.cap_bytes_per_s == CEILING
    assert pool.capacity.wake_at_s() is None


@pytest.mark.parametrize("uids", [("a",), ("a", "b"), tuple("abcdefghijklmnop")])
def test_slow_storage_lowers_the_cap_to_what_was_achieved(pool: Pool, uids: tuple[str, ...]) -> None:
    """With one writer as with many: a little above the sum of what they get."""
    granted = CEILING // len(uids)
    pool.known(*uids, granted=granted)
    cap = pool.round(**{uid: report(granted, 0.4 * granted) for uid in uids})
    assert cap == pytest.approx(1.02 * 0.4 * CEILING, rel=0.01)


def test_one_finding_lowers_the_cap_to_a_quarter_at_most(pool: Pool) -> None:
    """A wrong report must not stop the pool."""
    pool.known("a", granted=CEILING)
    assert pool.round(a=report(CEILING, 10_000)) == CEILING // 4


def test_the_cap_ends_at_a_hundredth_of_the_ceiling(pool: Pool) -> None:
    """Whatever storage does: from nothing nothing could be learned."""
    pool.known("a", granted=CEILING)
    for _ in range(20):
        pool.round(a=report(pool.capacity.cap_bytes_per_s, 100))
    assert pool.capacity.cap_bytes_per_s >= CEILING // 100


@pytest.mark.parametrize(
    "said",
    [
        report(500_000, 0.0),  # hung, or storage stalled: no byte tells how fast it is
        report(500_000, 100_000, busy=0.5),  # bound by its CPU
        report(500_000, 460_000),  # a little below its grant
        report(500_000, 500_000, throttled=0.3),  # held back by its grant
        report(0, 100_000),  # paused
        report(500_000, 100_000, time_s=1.5),  # too short: the end of a tail
    ],
)
def test_what_is_no_sign_of_slow_storage(pool: Pool, said: Report) -> None:
    """Time in which storage was not waited for, and time in which nothing was asked of it."""
    pool.known("a", "b")
    assert pool.round(a=said, b=said) == CEILING


def test_half_a_stall_is_no_sample(pool: Pool) -> None:
    """The report after one of 0 bytes covers the end of the stall: its mean says nothing about now."""
    pool.known("a", "b")
    pool.round(a=report(500_000, 0.0), b=report(500_000, 0.0))
    assert pool.round(a=report(500_000, 150_000), b=report(500_000, 150_000)) == CEILING


def test_a_finding_is_taken_back_if_its_writer_stands_still(pool: Pool) -> None:
    """It hung in the middle of a report: what looked slow was the beginning of a stall."""
    pool.known("a", granted=CEILING)
    cap = pool.round(a=report(CEILING, 0.5 * CEILING))
    assert cap < CEILING
    assert pool.round(a=report(cap, 0.0, time_s=0.5)) == cap
    assert pool.round(a=report(cap, 0.0)) == CEILING


def test_a_finding_stands_where_its_writer_goes_on(pool: Pool) -> None:
    """That it hangs later is another matter."""
    pool.known("a", granted=CEILING)
    cap = pool.round(a=report(CEILING, 0.5 * CEILING))
    pool.round(a=report(cap, cap, throttled=0.1))
    assert pool.round(a=report(cap, 0.0)) < CEILING


def test_one_slow_writer_is_no_slow_storage(pool: Pool) -> None:
    """Its own maximum is lowered once it is slow again, and the rest is for others."""
    pool.known("a", "b", "slow", granted=CEILING // 3)
    fine = report(CEILING // 3, CEILING // 3, throttled=0.3)
    cap = pool.rounds(2, a=fine, b=fine, slow=report(CEILING // 3, 50_000))
    assert cap == CEILING
    assert pool.capacity.slow_maximum("slow") == pytest.approx(1.06 * 50_000, rel=0.01)
    assert pool.capacity.slow_maximum("a") is None


def test_writers_of_a_slow_pool_are_not_limited_one_by_one(pool: Pool) -> None:
    """All get a tenth less than they are granted, again and again: that is storage, and no maximum sinks."""
    pool.known(*"abcd", granted=CEILING // 4)
    cap = pool.round(**{uid: report(CEILING // 4, 0.4 * CEILING / 4) for uid in "abcd"})
    pool.known(*"abcd", granted=cap // 4)
    pool.rounds(3, **{uid: report(cap // 4, 0.9 * cap / 4) for uid in "abcd"})
    assert [pool.capacity.slow_maximum(uid) for uid in "abcd"] == [None] * 4


def test_a_cpu_bound_writer_holds_back_no_share(pool: Pool) -> None:
    """It is given a little more than it uses, at once: that it computes is no question of storage."""
    pool.round(a=report(500_000, 100_000, busy=0.9))
    assert pool.capacity.slow_maximum("a") == pytest.approx(106_000, rel=0.01)


def test_a_maximum_doubles_when_it_is_filled(pool: Pool) -> None:
    """A writer that has become faster works its way up, until nothing limits it any more."""
    pool.round(a=report(500_000, 100_000, busy=0.9))
    for _ in range(5):
        maximum = pool.capacity.slow_maximum("a")
        if maximum is not None:
            pool.round(a=report(maximum, maximum, throttled=0.2))
    assert pool.capacity.slow_maximum("a") is None


def test_what_was_left_over_for_a_writer_is_not_its_maximum(pool: Pool) -> None:
    """A share that others left to it says nothing about what it can use."""
    pool.round(a=report(500_000, 100_000, busy=0.9))
    before = pool.capacity.slow_maximum("a")
    pool.round(a=report(50_000, 50_000, throttled=0.2))
    assert pool.capacity.slow_maximum("a") == before


def test_a_stranger_alone_is_limited_and_the_cap_stays(pool: Pool) -> None:
    """Nobody knows whether it could ever do better: most jobs cannot fill a pool alone."""
    assert pool.round(a=report(CEILING, 75_000)) == CEILING
    assert pool.capacity.slow_maximum("a") == pytest.approx(1.06 * 75_000, rel=0.01)


def test_strangers_do_not_outvote_those_who_are_known(pool: Pool) -> None:
    """Newcomers with large shares, slow for reasons of their own, beside two who get what they are used to."""
    pool.known("a", "b", granted=50_000)
    fine = report(50_000, 50_000, throttled=0.3)
    slow = report(300_000, 40_000)
    assert pool.round(a=fine, b=fine, x=slow, y=slow, z=slow) == CEILING


def test_three_strangers_that_are_all_slow_are_believed(pool: Pool) -> None:
    """A service that starts while storage is slow finds out."""
    slow = report(CEILING // 4, CEILING // 10)
    assert pool.round(a=slow, b=slow, c=slow, d=slow) == pytest.approx(1.02 * 0.4 * CEILING, rel=0.01)


def test_what_a_job_is_used_to_outlives_its_lease(pool: Pool) -> None:
    """A writer that gets all of the pool, and what it always gets of it, is no slow storage."""
    pool.round(a=report(CEILING, 75_000))
    pool.capacity.left("a")
    assert pool.capacity.slow_maximum("a") is not None
    assert pool.rounds(2, a=report(CEILING, 74_000)) == CEILING


def test_nothing_rises_for_fifteen_seconds_after_a_slow_report() -> None:
    """The writers' next reports come first."""
    pool = fallen("a", "b")
    cap = pool.capacity.cap_bytes_per_s
    fine = report(cap // 2, cap // 2, throttled=0.3)
    assert pool.rounds(2, a=fine, b=fine) == cap
    assert pool.round(a=fine, b=fine) == pytest.approx(1.04 * cap, rel=0.001)


def test_probing_doubles_its_step_and_reaches_the_ceiling_within_90_seconds() -> None:
    """While the writers get what they are granted and the cap is in use; the hold counts as quiet time, too."""
    pool = fallen("a", "b")
    caps = [pool.capacity.cap_bytes_per_s]
    while caps[-1] < 0.9 * CEILING and pool.now_s < 200.0:
        share = caps[-1] // 2
        fine = report(share, share, throttled=0.3)
        caps.append(pool.round(a=fine, b=fine))
    steps = [after / before - 1.0 for before, after in itertools.pairwise(caps)]
    assert steps[:9] == pytest.approx([0.0, 0.0, 0.04, 0.04, 0.04, 0.08, 0.08, 0.08, 0.16], abs=0.001)
    assert max(steps) <= 0.251
    assert len(caps) * RENEWAL_S <= 90.0


def test_a_step_doubles_also_while_the_cap_is_not_in_use() -> None:
    """By time: two thirds in use for 40 s, all of them quiet; the next probe is of 16 %."""
    pool = fallen("a", "b")
    cap = pool.capacity.cap_bytes_per_s
    fine = report(cap // 3, cap // 3, throttled=0.3)
    assert pool.rounds(8, a=fine, b=fine) == cap
    full = report(cap // 2, cap // 2, throttled=0.3)
    assert pool.round(a=full, b=full) == pytest.approx(1.16 * cap, rel=0.001)


def test_time_in_which_nobody_writes_earns_no_larger_step() -> None:
    """Nothing was learned in it: the first probe is the one that comes after the hold."""
    pool = fallen("a", "b")
    pool.rounds(20)
    cap = pool.capacity.cap_bytes_per_s
    full = report(cap // 2, cap // 2, throttled=0.3)
    assert pool.round(a=full, b=full) == pytest.approx(1.04 * cap, rel=0.001)


def test_those_who_leave_too_little_for_another_do_not_hold_the_cap_down() -> None:
    """They get all of their 0.91 of the cap, but for lead-ins; the cap drifts until the rest is worth a start."""
    pool = fallen("a", "b")
    cap = pool.capacity.cap_bytes_per_s
    granted = int(0.91 * cap)
    for number in range(60):
        pool.now_s += 0.8
        last = pool.save("ab"[number % 2], report(granted, granted, throttled=0.1, time_s=4.0))
    assert last >= 1.17 * granted


def test_saves_too_short_for_a_renewal_are_probed_for_too() -> None:
    """One at a time: at no tick has whoever writes reported; what the one before got is the newest that is known."""
    pool = fallen("a", "b")
    begun_s = pool.now_s
    while pool.capacity.cap_bytes_per_s < 0.9 * CEILING and pool.now_s < begun_s + 200.0:
        for uid in "ab":
            cap = pool.capacity.cap_bytes_per_s
            pool.save(uid, report(cap, cap, throttled=0.3, time_s=3.5))
    assert pool.now_s - begun_s <= 90.0


def test_short_saves_on_slow_storage_do_not_let_the_cap_drift_away() -> None:
    """They get what storage has, one after another: the cap ends a little above that, not at the ceiling."""
    pool = fallen("a", "b")
    for _ in range(100):
        for uid in "ab":
            cap = pool.save(uid, report(pool.capacity.cap_bytes_per_s, 400_000, time_s=3.5))
    assert 400_000 < cap <= 1.2 * 400_000


def test_a_report_of_more_time_than_has_passed_breaks_nothing() -> None:
    """Whatever an agent says of its clock."""
    pool = fallen("a", "b")
    pool.capacity.left("a")
    pool.capacity.left("b")
    pool.now_s += 20.0
    pool.capacity.granted("a", 400_000, pool.now_s)
    pool.capacity.reported("a", report(400_000, 400_000, time_s=3.5), pool.now_s)
    pool.capacity.left("a")
    pool.capacity.passed(pool.now_s, 0)
    assert pool.capacity.cap_bytes_per_s >= 400_000


def test_a_cap_that_is_not_in_use_is_not_probed() -> None:
    """It drifts, and no further than one more writer needs to start."""
    pool = fallen("a", "b")
    cap = pool.capacity.cap_bytes_per_s
    fine = report(cap // 4, cap // 4, throttled=0.3)
    assert pool.rounds(100, a=fine, b=fine) == cap
    assert pool.rounds(4) > cap


def test_writers_that_do_not_quite_get_their_grants_stop_the_probing() -> None:
    """Storage is full: the cap drifts by a hundredth per five seconds, it does not jump."""
    pool = fallen("a", "b")
    cap = pool.capacity.cap_bytes_per_s
    tight = report(cap // 2, 0.93 * cap / 2)
    assert cap < pool.rounds(5, a=tight, b=tight) <= 1.04 * cap


def test_an_idle_pool_doubles_its_cap_in_five_minutes() -> None:
    """Old trouble is forgotten, however the ticks come."""
    pool = fallen("a", "b")
    cap = pool.capacity.cap_bytes_per_s
    pool.capacity.left("a")
    pool.capacity.left("b")
    pool.capacity.passed(pool.now_s + 10.0 + 300.0, 0)
    assert pool.capacity.cap_bytes_per_s == pytest.approx(2 * cap, rel=0.01)
    pool.capacity.passed(pool.now_s + 1000.0, 0)
    assert pool.capacity.cap_bytes_per_s == CEILING
    assert pool.capacity.wake_at_s() is None


def test_writers_that_stand_still_let_nothing_drift() -> None:
    """A stalled storage is not an idle one."""
    pool = fallen("a", "b")
    cap = pool.capacity.cap_bytes_per_s
    pool.round(**{uid: report(cap // 2, cap / 2, throttled=0.1) for uid in "ab"})
    hung = report(cap // 2, 0.0)
    assert pool.rounds(30, a=hung, b=hung) == cap


def test_what_is_counted_for_silent_jobs_is_not_missing_in_what_was_achieved(pool: Pool) -> None:
    """Without it a fall would leave nothing to those who do report."""
    pool.known("a", granted=600_000)
    pool.capacity.reported("a", report(600_000, 240_000), pool.now_s + 5.0, silent_bytes_per_s=400_000)
    assert pool.capacity.cap_bytes_per_s == pytest.approx(400_000 + 1.02 * 240_000, rel=0.01)


@pytest.mark.parametrize(
    ("ceiling", "cap"), [(CEILING, 408_000), (300_000, 300_000), (10 * CEILING, 408_000), (10**9, 10**7)]
)
def test_the_cap_is_kept_under_the_ceiling_of_today(ceiling: int, cap: int) -> None:
    """A restart goes on with it; a changed ceiling clamps it, and so does its hundredth."""
    kept = fallen("a", "b").capacity.to_dict()
    assert Capacity.from_dict(kept, ceiling).cap_bytes_per_s == pytest.approx(cap, rel=0.01)


def test_a_ceiling_that_was_reached_is_not_kept_as_a_cap() -> None:
    """Nothing was learned: who raises the capacity of a pool has it at once, not after half an hour of doubling."""
    kept = Capacity(CEILING).to_dict()
    assert Capacity.from_dict(kept, 100 * CEILING).cap_bytes_per_s == 100 * CEILING


def test_nothing_kept_means_the_ceiling() -> None:
    """Records of a version that learned nothing."""
    assert Capacity.from_dict({}, CEILING).cap_bytes_per_s == CEILING


def test_a_kept_cap_rises_again_though_nobody_reports() -> None:
    """The first look at the clock sets its time."""
    capacity = Capacity.from_dict({"cap_bytes_per_s": 400_000}, CEILING)
    capacity.passed(100.0, 0)
    assert capacity.wake_at_s() == pytest.approx(115.0)
    capacity.passed(115.0, 0)
    assert capacity.cap_bytes_per_s > 400_000


def test_names_cost_no_memory_without_bound(pool: Pool) -> None:
    """Ten thousand jobs that wrote once leave a bounded number of habits, and no flows."""
    for number in range(10_000):
        pool.capacity.reported(f"job-{number}", report(1000, 500, time_s=2.0), 20.0 * number)
        pool.capacity.left(f"job-{number}")
    assert len(pool.capacity._habits._habits) <= 4096
    assert len(pool.capacity._flows._flows) <= 2
