"""The plan price: the worked examples of the theory, the scalar twin, and what can not be had."""

import math
import random
from collections.abc import Sequence

import pytest

from rampmeter.core import interval
from rampmeter.core.interval import Load
from rampmeter_coordinator.model import pricing
from rampmeter_coordinator.model.asked import Asked

GPUS, MTBF_S, STALL_S, BYTES = 256, 32_400.0, 1.5, 1_400_000_000_000


def load(**changes: object) -> Load:
    figures = {"num_bytes": BYTES, "num_gpus": GPUS, "cost_s": STALL_S, "mtbf_s": MTBF_S}
    return Load(**(figures | changes))


def solve(loads: Sequence[Load], budget: float, **options: float) -> float:
    """The price for jobs that are all believed."""
    return pricing.solve(Asked.of(loads), budget, **options)


def fleet(bytes_per_s: float) -> tuple[float, float]:
    """200 equal jobs on a storage of which 0.8 may be used: the price and the interval of each."""
    price = solve([load()] * 200, 0.8 * bytes_per_s)
    return price, load().interval_s(price)


def test_fast_storage_has_no_price() -> None:
    """E1: at 2 TB/s the jobs ask for 45 % of it: price 0, T = sqrt(2 M C) = 311.77 s."""
    price, interval_s = fleet(2e12)
    assert price == 0.0
    assert interval_s == pytest.approx(311.77, abs=0.01)
    assert 200 * BYTES / interval_s == pytest.approx(898e9, rel=1e-3)


def test_slow_storage_lengthens_intervals_to_what_fits() -> None:
    """E2: at 100 GB/s T = 3,500 s, the price is 3.4294e-8 and the demand exactly 80 GB/s."""
    price, interval_s = fleet(100e9)
    assert interval_s == pytest.approx(3500.0, rel=1e-6)
    assert price == pytest.approx(3.4294e-8, rel=1e-4)
    assert 200 * BYTES / interval_s <= 80e9 * (1 + 1e-9)
    waste = interval.waste(interval_s, STALL_S, MTBF_S, write_s=0.0, restart_s=0.0)
    assert waste.total == pytest.approx(0.05444, abs=1e-5)


@pytest.mark.parametrize(
    ("slower", "interval_s", "price"),
    [(1, 311.77, 0.0), (2, 350.0, None), (4, 700.0, None), (10, 1750.0, 8.368e-9), (20, 3500.0, 3.4294e-8)],
)
def test_slower_storage_never_shortens(slower: float, interval_s: float, price: float | None) -> None:
    """E3: 2 TB/s slowed by a factor; T grows with it, not with its root."""
    found, chosen_s = fleet(2e12 / slower)
    assert chosen_s == pytest.approx(interval_s, rel=1e-4)
    assert price is None or found == pytest.approx(price, rel=1e-3)


def test_small_jobs_give_way() -> None:
    """E4: two classes at 100 GB/s; the stretch is x1.96 for 1,024 GPUs and x3.17 for 8."""
    big = load(num_gpus=1024, num_bytes=5_600_000_000_000, mtbf_s=interval.mtbf(1024))
    small = load(num_gpus=8, num_bytes=140_000_000_000, mtbf_s=interval.mtbf(8))
    price = solve([big] * 20 + [small] * 180, 80e9)
    for job, own_s, stretch in ((big, 726.0, 1.96), (small, 8216.0, 3.17)):
        assert job.own_period_s == pytest.approx(own_s, rel=1e-3)
        assert job.interval_s(price) / job.own_period_s == pytest.approx(stretch, abs=0.01)


def test_the_write_floor_holds() -> None:
    """E5: M = 2,700 s, C = 0.2 s, W = 150 s: Young's 32.9 s is below 1.25 W = 187.5 s."""
    job = load(mtbf_s=2700.0, cost_s=0.2, write_s=150.0)
    assert interval.young(0.2, 2700.0) == pytest.approx(32.9, abs=0.05)
    assert job.interval_s(solve([job], 1e15)) == 187.5


def test_synchronous_jobs_follow_their_write_time() -> None:
    """E6: C 15 -> 150 s is 985.9 -> 3,117.7 s by Young (C/M < 0.01), 3,018.5 s by Daly."""
    assert interval.period(15.0, MTBF_S) == pytest.approx(985.9, abs=0.05)
    assert interval.period(150.0, MTBF_S) == pytest.approx(3117.7, abs=0.05)
    assert interval.daly(150.0, MTBF_S) == pytest.approx(3018.5, abs=0.05)
    assert interval.daly(15.0, MTBF_S) == pytest.approx(975.9, abs=0.05)
    assert interval.cost(1.5, 150.0, 0.02, synchronous=True) == 150.0


def test_a_higher_price_never_shortens_an_interval() -> None:
    """The period is monotone in the cost, also where Daly's takes over from Young's: so the price is unique."""
    periods = [interval.period(MTBF_S * 1.02**n * 1e-5, MTBF_S) for n in range(700)]
    assert periods == sorted(periods)


def test_the_price_is_the_smallest_that_fits() -> None:
    """A price 0.1 % lower asks for more than the budget."""
    rng = random.Random(5)
    jobs = [
        load(
            num_gpus=rng.choice([8, 64, 2048]),
            num_bytes=rng.randint(10**11, 10**13),
            mtbf_s=rng.uniform(1e4, 1e6),
            cost_s=rng.uniform(0.1, 10.0),
        )
        for _ in range(50)
    ]
    columns = Asked.of(jobs)
    budget = 0.3 * columns.demand(0.0)
    price = solve(jobs, budget)
    assert columns.demand(price) <= budget
    assert columns.demand(price * 0.999) > budget
    assert columns.demand(price) == pytest.approx(sum(job.num_bytes / job.interval_s(price) for job in jobs))


def test_nobody_has_no_price() -> None:
    """An empty pool, and jobs whose bytes are unknown, cost nothing."""
    assert solve([], 1e9) == 0.0
    assert solve([load(num_bytes=0)], 1e9) == 0.0


def test_storage_that_carries_nobody_still_has_an_answer() -> None:
    """Where even the longest intervals do not fit, everybody gets the longest and nothing breaks."""
    interval_s = load().interval_s(solve([load()] * 10_000, 1e6))
    assert math.isfinite(interval_s)
    assert interval_s >= 3500.0
