"""The learned cap in a closed loop: simulated storage, noisy reports, writers that come and go."""

import random
import statistics

import pytest

from support.capacity_loop import GB, STEP_S, Loop, Moment, Play

DROP_S, RECOVER_S, END_S = 200.0, 500.0, 750.0
FAST, SLOW = 400 * GB, 160 * GB
SETTLED_S = 40.0
BACK_S = 90.0


def degrading(at_s: float) -> float:
    """400 GB/s, then 160, then 400 again."""
    return float(SLOW if DROP_S <= at_s < RECOVER_S else FAST)


def seconds_until_level(moments: list[Moment]) -> float:
    """Of writing at less than was granted, until what is granted is at most 15 % above what storage can do."""
    blocked_s = 0.0
    for moment in moments:
        if moment.at_s >= DROP_S and moment.granted <= 1.15 * SLOW:
            return blocked_s
        blocked_s += STEP_S * (moment.at_s >= DROP_S and moment.written >= 0.99 * moment.truth)
    return float("inf")


def seconds_until_back(moments: list[Moment]) -> float:
    back = (m.at_s - RECOVER_S for m in moments if m.at_s >= RECOVER_S and m.cap >= 0.9 * FAST)
    return next(back, float("inf"))


def mean_over(moments: list[Moment]) -> float:
    """Granted over what storage can do, while it is slow and the cap has settled."""
    return statistics.mean(m.granted / m.truth for m in moments if DROP_S + SETTLED_S <= m.at_s < RECOVER_S)


def least_steady(moments: list[Moment]) -> float:
    """The smallest cap over the truth where nothing has just changed."""
    steady = (
        m.cap / m.truth
        for m in moments
        if 30.0 <= m.at_s < DROP_S or DROP_S + SETTLED_S <= m.at_s < RECOVER_S or m.at_s >= RECOVER_S + BACK_S
    )
    return min(steady)


@pytest.mark.parametrize(
    ("num_writers", "seed"), [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (16, 0), (16, 1), (64, 0)]
)
def test_the_cap_follows_storage_down_and_up(num_writers: int, seed: int) -> None:
    """Down within 10 s of blocked writing, back within 90 s, a little over in between, never far below."""
    moments = Loop(Play(truth=degrading, num_writers=num_writers), seed).run(END_S)
    assert seconds_until_level(moments) <= 10.0
    assert seconds_until_back(moments) <= 90.0
    assert mean_over(moments) <= 1.15
    assert least_steady(moments) >= 0.8


@pytest.mark.parametrize("num_writers", [1, 2, 16])
def test_healthy_storage_stays_in_use(num_writers: int) -> None:
    """Noise, CPU-bound writers, lead-ins and tails: none of it lowers the cap for long."""
    moments = Loop(Play(truth=lambda at_s: float(FAST), num_writers=num_writers), 3).run(600.0)
    assert statistics.mean(m.cap / m.truth for m in moments) >= 0.95
    assert min(m.cap / m.truth for m in moments) >= 0.8


@pytest.mark.parametrize("num_writers", [16, 64])
def test_jobs_that_cannot_fill_the_pool_alone_do_not_lower_its_cap(num_writers: int) -> None:
    """Nobody said how fast they are: the first gets everything, and its network takes a fraction of it."""
    play = Play(
        truth=lambda at_s: float(FAST), num_writers=num_writers, declared=False, num_jobs=3 * num_writers
    )
    moments = Loop(play, 1).run(400.0)
    assert min(m.cap / m.truth for m in moments) >= 0.9


def test_short_writes_that_come_and_go_end_in_the_same_place() -> None:
    """Writes of a few seconds: most of what they report is the beginning or the end."""
    play = Play(truth=degrading, num_writers=8, write_s=(4.0, 15.0), lead_s=2.0, tail_s=1.0)
    moments = Loop(play, 5).run(END_S)
    assert mean_over(moments) <= 1.15
    assert seconds_until_back(moments) <= 150.0


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_what_is_granted_is_bounded_and_the_cap_comes_back(seed: int) -> None:
    """Random ceilings, depths and writers, long leases, silent jobs' shares."""
    rng = random.Random(seed)
    ceiling = int(10 ** rng.uniform(8.0, 12.0))
    low = rng.choice([0.1, 0.2, 0.4, 0.7])
    play = Play(
        truth=lambda at_s: ceiling * (low if DROP_S <= at_s < RECOVER_S else 1.0),
        num_writers=rng.choice([1, 2, 3, 5, 8, 16]),
        ceiling_bytes_per_s=ceiling,
        write_s=rng.choice([(20.0, 120.0), (100.0, 900.0)]),
        lead_s=rng.choice([0.0, 12.0, 30.0]),
        tail_s=rng.choice([0.0, 5.0]),
        cpu_bound_share=rng.choice([0.0, 0.15]),
        pipe_share=rng.choice([1.2, 3.0]),
        silent_bytes_per_s=int(ceiling * rng.choice([0.0, 0.05])),
    )
    moments = Loop(play, seed).run(END_S)
    assert mean_over(moments) <= 1.3
    assert max(m.cap for m in moments if m.at_s >= RECOVER_S) >= 0.9 * ceiling
