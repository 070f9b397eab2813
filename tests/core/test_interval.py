"""Young, Daly and the priced period: published numbers and what must hold everywhere."""

import math

import pytest

from rampmeter.core import interval


@pytest.mark.parametrize(
    ("stall_s", "mtbf_s", "period_s"), [(1.5, 32_400.0, 311.77), (240.0, 32_400.0, 3943.6)]
)
def test_young(stall_s: float, mtbf_s: float, period_s: float) -> None:
    """sqrt(2 C M)."""
    assert interval.young(stall_s, mtbf_s) == pytest.approx(period_s, abs=0.05)


@pytest.mark.parametrize(
    ("ratio", "error"),
    [(0.001, 0.0), (0.01, 0.0), (0.1, -0.0004), (0.2, -0.0012), (0.5, -0.0055), (1.0, -0.018)],
)
def test_daly_is_close_to_the_exact_period(ratio: float, error: float) -> None:
    """Against M (1 + W(-exp(-C/M - 1))), solved here by bisection."""
    low, high = 0.0, 1.0  # T/M with (1 - T/M) exp(T/M) = exp(-C/M)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if (1 - middle) * math.exp(middle) > math.exp(-ratio) else (low, middle)
    assert interval.daly(ratio, 1.0) / low - 1 == pytest.approx(error, abs=0.0006)


@pytest.mark.parametrize("factor", [2.0, 2.5, 100.0])
def test_a_stall_of_two_m_and_more_gives_m(factor: float) -> None:
    """Daly's estimate ends there."""
    assert interval.daly(factor * 1000.0, 1000.0) == 1000.0


def test_the_period_never_falls_with_the_cost() -> None:
    """Young's, level, Daly's: a higher cost never shortens it."""
    periods = [interval.period(1e-4 * 1.01**n, 1000.0) for n in range(2500)]
    assert periods == sorted(periods)


def load(**changes: object) -> interval.Load:
    figures = {"num_bytes": 14 * 10**11, "num_gpus": 256, "cost_s": 1.5, "mtbf_s": 32_400.0}
    return interval.Load(**(figures | changes))


def test_a_price_counts_as_stall() -> None:
    """lambda b / n seconds more; at price 0 it is the own period."""
    assert load().interval_s(0.0) == interval.period(1.5, 32_400.0)
    assert load().interval_s(3.4294e-8) == pytest.approx(3500.0, rel=1e-4)


@pytest.mark.parametrize("cost_s", [0.1, 1.5, 323.0, 325.0, 3_000.0, 70_000.0])
@pytest.mark.parametrize("price", [1e-12, 3e-8, 1e-5])
def test_the_bid_is_the_price_at_which_this_age_would_be_chosen(cost_s: float, price: float) -> None:
    """bid(T(price)) = price, on both sides of C/M = 0.01."""
    job = load(cost_s=cost_s)
    assert job.bid(job.interval_s(price)) == pytest.approx(price, rel=1e-6)


def test_a_job_younger_than_its_own_period_bids_nothing() -> None:
    """Nor does one of unknown size."""
    assert load().bid(300.0) == 0.0
    assert load(num_bytes=0).bid(1e6) == 0.0


def test_a_wish_for_a_period_has_a_cost() -> None:
    """The inverse of Young's formula."""
    assert interval.young(interval.cost_of_period(123.0, 5000.0), 5000.0) == pytest.approx(123.0)


def test_waste_by_cause() -> None:
    """C/T, (T/2 + W)/M, R/M: the reference example of the theory."""
    waste = interval.waste(3943.6, 240.0, 32_400.0, write_s=0.0, restart_s=840.0)
    assert waste.write == pytest.approx(0.0609, abs=1e-4)
    assert waste.total == pytest.approx(0.1476, abs=1e-4)


def test_the_cost_of_a_checkpoint() -> None:
    """The stall and what the flush slows down; all of the write where training waits for it."""
    assert interval.cost(2.0, 100.0, 0.02, synchronous=False) == 4.0
    assert interval.cost(2.0, 100.0, 0.02, synchronous=True) == 100.0


@pytest.mark.parametrize(
    ("num_failures", "gpu_hours", "hours"), [(0, 0.0, 195.3), (2, 100_000.0, 195.3), (5, 100_000.0, 97.7)]
)
def test_what_was_seen_outweighs_the_prior(num_failures: int, gpu_hours: float, hours: float) -> None:
    """256 GPUs; 50,000 GPU-hours between failures weigh as much as one failure."""
    assert interval.mtbf(256, num_failures, gpu_hours) / 3600.0 == pytest.approx(hours, rel=0.005)


@pytest.mark.parametrize(
    ("ratio", "longer"),
    [(0.001, 0.015), (0.01, 0.049), (0.05, 0.114), (0.1, 0.167), (0.2, 0.248), (0.5, 0.43), (1.0, 0.68)],
)
def test_how_far_young_is_from_the_exact_period(ratio: float, longer: float) -> None:
    """Theory 3.6: 5 % from C/M = 0.01 on, which is where the exact one takes over."""
    assert interval.young(ratio, 1.0) / interval.exact(ratio, 1.0) - 1.0 == pytest.approx(longer, abs=0.005)


@pytest.mark.parametrize(
    ("write_s", "eps", "period_s"), [(15.0, 0.0, 311.77), (15.0, 0.02, 341.5), (150.0, 0.02, 540.0)]
)
def test_a_slow_write_lengthens_the_period_also_where_storage_has_no_price(
    write_s: float, eps: float, period_s: float
) -> None:
    """341 -> 540 s for a write of 15 -> 150 s that slows training by 2 %; nothing where it slows nothing."""
    job = load(cost_s=interval.cost(1.5, write_s, eps, synchronous=False), write_s=write_s)
    assert job.own_period_s == pytest.approx(period_s, rel=0.005)


def test_a_minute_in_the_queue_costs_twelve_times_less_before_the_snapshot() -> None:
    """E7: +0.185 % where the snapshot waits for the slot, +0.015 % where the slot comes first and T is 60 s longer."""

    def lost(interval_s: float, write_s: float) -> float:
        return interval.waste(interval_s, 1.5, 32_400.0, write_s=write_s, restart_s=0.0).total

    assert lost(311.77, 60.0) - lost(311.77, 0.0) == pytest.approx(0.00185, abs=5e-6)
    assert lost(371.77, 0.0) - lost(311.77, 0.0) == pytest.approx(0.00015, abs=5e-6)


@pytest.mark.parametrize(
    ("bytes_per_s", "interval_s", "price"),
    [
        (2e12, 311.77, 0.0),
        (1e12, 350.0, None),
        (5e11, 700.0, None),
        (2e11, 1750.0, 8.368e-9),
        (1e11, 3500.0, 3.4294e-8),
    ],
)
def test_two_hundred_jobs_on_one_storage(bytes_per_s: float, interval_s: float, price: float | None) -> None:
    """E1 to E3: 200 x 1.4 TB, u = 0.8."""
    jobs = [load()] * 200
    found = interval.solve_price(jobs, 0.8 * bytes_per_s)
    assert jobs[0].interval_s(found) == pytest.approx(interval_s, rel=0.005)
    assert price is None or found == pytest.approx(price, rel=0.005)


def test_a_base_price_is_the_least() -> None:
    """It holds on idle storage, and gives way to a higher one."""
    jobs = [load()] * 200
    assert interval.solve_price(jobs, 1.6e12, base_price=1e-9) == 1e-9
    assert interval.solve_price(jobs, 8e10, base_price=1e-9) == pytest.approx(3.4294e-8, rel=0.005)
