"""When plans change for a whole fleet at once, jobs that were spread stay spread: real pacers, real lease clocks.

200 jobs, T 3,500 s at 100 GB/s and 311.8 s once storage is fast again (the worked examples): one second of the new
schedule is what 11.2 s of the old one were.
"""

import random
from bisect import bisect_left

import pytest

from support.answers import noted, plan
from support.pacing import START, flushing, registered, say

NUM_JOBS = 200
SLOW_S, FAST_S = 3500.0, 311.77


def after_saves(num_saves, offset, now_s, *, interval_s, own_period_s):
    """A job that has made its first `num_saves` saves by `now_s`; `offset` in [0, 1) is its place in the interval."""
    told = plan(interval_s=interval_s, phase_offset_s=offset * interval_s, request_after_s=own_period_s)
    pacer = registered(draw=0.5 * offset)
    pacer.answered(noted(plan=told), START, START)
    for _ in range(num_saves):
        saved_s = flushing(pacer)
        assert saved_s <= now_s
        pacer.ended(saved_s, committed=True)
        say(pacer, noted(), saved_s)
    return pacer


def fleet(seed, now_s, *, num_saves, interval_s, own_period_s, within=(0.0, 1.0)):
    """Jobs of which none is due yet, with their places in the interval drawn within these bounds."""
    rng = random.Random(seed)
    pacers = [
        after_saves(num_saves, rng.uniform(*within), now_s, interval_s=interval_s, own_period_s=own_period_s)
        for _ in range(NUM_JOBS)
    ]
    assert min(pacer.due_s for pacer in pacers) >= now_s
    return pacers


def replan(pacers, now_s, *, interval_s, own_period_s):
    """Everybody hears the same news at once: the worst case. Due times before and after."""
    before = [pacer.due_s for pacer in pacers]
    for pacer in pacers:
        offset_s = pacer.lease_clock.plan.phase_offset_s * interval_s / pacer.lease_clock.plan.interval_s
        told = plan(number=2, interval_s=interval_s, phase_offset_s=offset_s, request_after_s=own_period_s)
        pacer.answered(noted(plan=told), now_s, now_s)
    return before, [pacer.due_s for pacer in pacers]


def assert_none_holds_more(before, after, now_s, factor):
    """No second that begins with somebody's due time holds more of them than its counterpart did, + 1."""
    old, new = sorted(before), sorted(after)
    for begin_s in new:
        num = bisect_left(new, begin_s + 1.0) - bisect_left(new, begin_s)
        matching_s = now_s + (begin_s - now_s) * factor
        num_before = bisect_left(old, matching_s + factor) - bisect_left(old, matching_s)
        assert num <= num_before + 1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("old_s", "new_s"), [(SLOW_S, FAST_S), (FAST_S, SLOW_S)], ids=["faster", "slower"])
def test_second_saves_keep_their_distances(seed, old_s, new_s):
    """They are spread over the whole interval; 3,500 s become 312 s, or the other way round."""
    within = (min(old_s, 600.0) / old_s, 1.0) if old_s > 600.0 else (0.5, 1.0)
    now_s = START + within[0] * old_s
    pacers = fleet(seed, now_s, num_saves=1, interval_s=old_s, own_period_s=FAST_S, within=within)
    before, after = replan(pacers, now_s, interval_s=new_s, own_period_s=FAST_S)
    assert max(before) - min(before) > 0.45 * old_s
    assert [due_s - now_s for due_s in after] == pytest.approx(
        [(due_s - now_s) * new_s / old_s for due_s in before]
    )
    assert_none_holds_more(before, after, now_s, old_s / new_s)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("old_s", "new_s"), [(SLOW_S, FAST_S), (FAST_S, SLOW_S)], ids=["faster", "slower"])
def test_later_saves_keep_theirs_when_own_periods_change(seed, old_s, new_s):
    """Synchronous jobs, say: with the storage their own periods are slow and fast."""
    now_s = START + old_s
    pacers = fleet(seed, now_s, num_saves=2, interval_s=old_s, own_period_s=old_s)
    before, after = replan(pacers, now_s, interval_s=new_s, own_period_s=new_s)
    assert max(before) - min(before) > 0.9 * old_s
    assert max(after) - min(after) == pytest.approx((max(before) - min(before)) * new_s / old_s)
    assert_none_holds_more(before, after, now_s, old_s / new_s)


@pytest.mark.parametrize(("old_s", "new_s"), [(SLOW_S, FAST_S), (FAST_S, SLOW_S)], ids=["falls", "rises"])
def test_a_price_moves_no_later_save(old_s, new_s):
    """T goes from 3,500 s to 312 s or back, but whoever has just saved may ask 312 s later, as before."""
    now_s = START + 0.9 * old_s
    recently = (0.9 - 0.9 * FAST_S / old_s, 0.9) if old_s > FAST_S else (0.1, 0.9)
    pacers = fleet(1, now_s, num_saves=2, interval_s=old_s, own_period_s=FAST_S, within=recently)
    before, after = replan(pacers, now_s, interval_s=new_s, own_period_s=FAST_S)
    assert after == pytest.approx(before)


def test_whoever_is_due_stays_due():
    """Nothing is put off by news."""
    pacers = fleet(1, START + 600.0, num_saves=1, interval_s=SLOW_S, own_period_s=FAST_S, within=(0.2, 1.0))
    now_s = START + 0.6 * SLOW_S
    overdue = [pacer for pacer in pacers if pacer.due_s <= now_s]
    _, after = replan(overdue, now_s, interval_s=2.0 * SLOW_S, own_period_s=FAST_S)
    assert len(overdue) > 50
    assert max(after) <= now_s
