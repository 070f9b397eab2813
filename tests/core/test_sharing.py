"""What jobs lose when nobody coordinates them, against theory.md 3.3 and 3.4 and against itself."""

import itertools
import math
import random

import pytest

from rampmeter.core import sharing
from rampmeter.core.interval import Load, solve_price, waste
from rampmeter.core.sharing import (
    SharingJob,
    aligned,
    aligned_write_times,
    random_phases,
    random_write_times,
    slow_down,
)

HOUR_S = 3600.0
FAST = 93_333_333_333
"""15 s for 1.4 TB."""


def job(
    *,
    num_bytes=1_400_000_000_000,
    stall_s=1.5,
    eps=0.0,
    synchronous=False,
    most=FAST,
    mtbf_s=9 * HOUR_S,
    **load,
):
    """One of the 200 jobs of the worked examples."""
    return SharingJob(
        load=Load(num_bytes=int(num_bytes), num_gpus=256, cost_s=stall_s, mtbf_s=mtbf_s, **load),
        stall_s=stall_s,
        eps=eps,
        synchronous=synchronous,
        restart_s=0.0,
        max_bytes_per_s=most,
    )


def mixed(num_jobs, *, synchronous_share=0.3, seed=1):
    """Jobs of all sizes."""
    draw = random.Random(seed)
    return [
        SharingJob(
            load=Load(
                num_bytes=int(10 ** draw.uniform(10, 13)),
                num_gpus=draw.choice([8, 64, 256, 1024]),
                cost_s=0.0,
                mtbf_s=10 ** draw.uniform(3.4, 6),
            ),
            stall_s=draw.uniform(0.5, 5),
            eps=0.02,
            synchronous=draw.random() < synchronous_share,
            restart_s=60.0,
            max_bytes_per_s=int(10 ** draw.uniform(9, 11)),
        )
        for _ in range(num_jobs)
    ]


@pytest.mark.parametrize(
    ("capacity_bytes_per_s", "write_s", "lost"),
    [(2e12, 140.0, 0.01394), (1e12, 280.0, 0.01826), (1e11, 2_800.0, 0.13017)],
)
def test_a_herd_writes_for_as_long_as_all_its_bytes_take(capacity_bytes_per_s, write_s, lost):
    """280 TB on 2 TB/s are 140 s instead of 15; writes longer than the own period follow each other."""
    jobs = [job()] * 200
    assert aligned_write_times(jobs, capacity_bytes_per_s)[7] == pytest.approx(write_s)
    assert aligned(jobs, capacity_bytes_per_s)[7].total == pytest.approx(lost, rel=1e-3)


def test_at_the_coordinated_interval_the_herd_loses_what_the_tables_say():
    """theory.md 3.3 keeps the herd at the 3,500 s that fit: 14.09 %. Left alone the jobs write without a break."""
    (write_s,) = set(aligned_write_times([job()] * 200, 1e11))
    assert waste(3_500.0, 1.5, 9 * HOUR_S, write_s=write_s, restart_s=0.0).total == pytest.approx(
        0.1409, rel=1e-3
    )


def test_random_phases_on_a_fast_storage_cost_nothing():
    """At 45 % load of 2 TB/s, where 21 jobs find room at once, a write takes its 15 s: 1.009 % lost."""
    jobs = [job()] * 200
    assert random_write_times(jobs, 2e12)[0] == pytest.approx(15.0, rel=2e-3)
    assert random_phases(jobs, 2e12)[0].total == pytest.approx(0.01009, rel=1e-3)


@pytest.mark.parametrize(("capacity_bytes_per_s", "simulated_s"), [(1e12, 18.3), (2e11, 30.2), (1e11, 52.2)])
def test_slow_down_is_not_far_above_regular_intervals(capacity_bytes_per_s, simulated_s):
    """Simulated with regular intervals at the load of theory.md 3.3: starts at random wait 1.3 to 1.4 times as long."""
    rho = 0.898 if capacity_bytes_per_s == 1e12 else 0.8
    modelled_s = 15.0 * slow_down(rho, capacity_bytes_per_s / FAST)
    assert simulated_s <= modelled_s <= 1.4 * simulated_s


@pytest.mark.parametrize(
    ("load", "longer", "inflation"), [(0.449, 1.25, 1.56), (1.0, 1.618, 2.618), (1.88, 2.312, 5.35)]
)
def test_synchronous_jobs_that_feed_their_write_time_back_settle(load, longer, inflation):
    """The fixed point of theory.md 3.4: y = (F + sqrt(F^2 + 4)) / 2, C = y^2 C0."""
    mtbf_s, num_jobs = 32_400_000.0, 200
    alone_s = load**2 * 2.0 * mtbf_s / num_jobs**2
    jobs = [job(num_bytes=alone_s * 1e12, synchronous=True, most=None, mtbf_s=mtbf_s)] * num_jobs
    write_s = random_write_times(jobs, 1e12)[0]
    assert write_s / alone_s == pytest.approx(inflation, rel=2e-3)
    assert jobs[0].interval_s(write_s) / math.sqrt(2 * mtbf_s * alone_s) == pytest.approx(longer, rel=2e-3)


@pytest.mark.parametrize("capacity_bytes_per_s", [1e10, 1e12, 1e13, 1e15])
@pytest.mark.parametrize("synchronous_share", [0.0, 0.3, 1.0])
def test_what_is_written_keeps_the_storage_as_busy_as_the_write_times_say(
    capacity_bytes_per_s, synchronous_share
):
    """The fixed point, checked from outside: rho from the intervals gives the write times back."""
    jobs = mixed(300, synchronous_share=synchronous_share)
    write_times = random_write_times(jobs, capacity_bytes_per_s)
    rho = sum(one.load.num_bytes / one.interval_s(w) for one, w in zip(jobs, write_times, strict=True))
    rho /= capacity_bytes_per_s
    assert rho < 1.0
    for one, write_s in zip(jobs, write_times, strict=True):
        lanes = max(1.0, capacity_bytes_per_s / one.max_bytes_per_s)
        assert write_s == pytest.approx(one.alone_s(capacity_bytes_per_s) * slow_down(rho, lanes), rel=1e-4)


def test_a_slower_storage_never_helps():
    """Waste of each job falls with the capacity, in both cases."""
    jobs = mixed(50)
    for law in (random_phases, aligned):
        lost = [[one.total for one in law(jobs, capacity)] for capacity in (1e10, 1e11, 1e12, 1e13)]
        assert all(
            a >= b * (1 - 1e-6)
            for slow, fast in itertools.pairwise(lost)
            for a, b in zip(slow, fast, strict=True)
        )


@pytest.mark.parametrize("capacity_bytes_per_s", [2e11, 5e11, 1e12])
def test_coordination_is_never_worse_than_its_absence(capacity_bytes_per_s):
    """200 equal jobs at the priced interval with the write time alone lose less than in either case here."""
    jobs = [job()] * 200
    price = solve_price([one.load for one in jobs], 0.8 * capacity_bytes_per_s)
    priced = waste(jobs[0].load.interval_s(price), 1.5, 9 * HOUR_S, write_s=15.0, restart_s=0.0).total
    assert priced <= random_phases(jobs, capacity_bytes_per_s)[0].total
    assert priced <= aligned(jobs, capacity_bytes_per_s)[0].total


def test_wishes_and_minima_of_users_hold_without_coordination_too():
    """A wish shortens, a minimum lengthens."""
    wished, bounded = job(wish_s=100.0), job(minimum_s=900.0)
    assert wished.interval_s(15.0) == 100.0
    assert bounded.interval_s(15.0) == 900.0
    assert wished.interval_s(200.0) == 200.0


def test_eps_makes_slow_writes_cost_training():
    """The stall grows by eps times the write time, and with it the interval."""
    slow = job(eps=0.02)
    assert slow.cost_s(150.0) == pytest.approx(4.5)
    assert slow.interval_s(150.0) == pytest.approx(540.0, rel=1e-3)


def test_no_jobs_and_jobs_of_unknown_size_are_no_load():
    """Nothing to write is answered, too."""
    assert random_phases([], 1e12) == aligned([], 1e12) == []
    assert random_write_times([job(num_bytes=0)], 1e12) == [0.0]


def test_ten_thousand_jobs_need_a_dozen_looks(monkeypatch):
    """Each look is an interval per job, about 20 ms for all: a view may ask for it."""
    looks = []
    original = sharing._share
    monkeypatch.setattr(sharing, "_share", lambda place: looks.append(place) or original(place))
    jobs = mixed(10_000)
    for capacity_bytes_per_s in (1e11, 2e12, 2e13, 1e14):
        looks.clear()
        assert len(random_phases(jobs, capacity_bytes_per_s)) == 10_000
        assert len(looks) <= 16


def test_a_load_of_just_one_is_found_as_fast(monkeypatch):
    """There the write time starts to matter in a kink, at which plain false position creeps: 155 looks."""
    looks = []
    original = sharing._share
    monkeypatch.setattr(sharing, "_share", lambda place: looks.append(place) or original(place))
    random_write_times([job()] * 200, 901_571_137_605.957)
    assert len(looks) <= 25


def test_a_synchronous_job_redoes_nothing_for_its_write() -> None:
    """It trains nothing while it writes: T/2 of work is lost with a failure, not T/2 + W."""
    blocked = job(num_bytes=1e12, synchronous=True, most=None)
    (lost,) = sharing.aligned([blocked], 1e10)
    (write_s,) = sharing.aligned_write_times([blocked], 1e10)
    interval_s = blocked.interval_s(write_s)
    assert lost.write == pytest.approx(write_s / interval_s)
    assert lost.rework == pytest.approx(interval_s / 2.0 / blocked.load.mtbf_s)
