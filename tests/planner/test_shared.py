"""Many jobs on one storage, against the solver that the coordinator uses."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rampmeter.core.interval import Load, demand, solve_price

SETTINGS = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)


@SETTINGS
@given(
    stall_s=st.floats(0.1, 600),
    mtbf_h=st.floats(0.5, 500),
    size_gb=st.integers(1, 10_000),
    num_gpus=st.integers(1, 4096),
    num_jobs=st.integers(2, 60),
    capacity_gb_per_s=st.integers(1, 3_000),
)
def test_the_shared_interval_is_that_of_the_solver(
    plan, stall_s, mtbf_h, size_gb, num_gpus, num_jobs, capacity_gb_per_s
):
    """Price and interval are those of core.interval.solve_price over all the jobs."""
    found = plan(
        f"--stall {stall_s:.6f}s --mtbf {mtbf_h:.6f}h --size {size_gb}GB --gpus {num_gpus} --jobs {num_jobs} "
        f"--capacity {capacity_gb_per_s}GB/s"
    )
    usable = 0.8e9 * capacity_gb_per_s
    load = Load(
        num_bytes=size_gb * 10**9,
        num_gpus=num_gpus,
        cost_s=float(f"{stall_s:.6f}"),
        mtbf_s=float(f"{mtbf_h:.6f}") * 3600,
        write_s=size_gb * 1e9 / usable,
    )
    price = solve_price([load] * num_jobs, usable)
    together = found["shared"]
    assert together["price"] == pytest.approx(price, rel=1e-6, abs=1e-18)
    assert together["interval_s"] == pytest.approx(load.interval_s(price), rel=1e-6)
    assert together["demand_bytes_per_s"] == pytest.approx(num_jobs * demand([load], price), rel=1e-6)
    assert together["demand_bytes_per_s"] <= usable * (1 + 1e-6)


def test_a_synchronous_job_feels_the_storage_in_its_stall(plan):
    """Alone it writes at its own 93 GB/s in 15 s; what the storage can plan is 8 GB/s: 175 s."""
    found = plan("--size 1.4TB --bandwidth 93333333333B/s --mtbf 9h --gpus 256 --jobs 2 --capacity 10GB/s")
    assert found["stall_s"] == pytest.approx(15.0)
    assert found["shared"]["write_s"] == pytest.approx(175.0)
    assert found["shared"]["interval_s"] == pytest.approx((2 * 175 * 32_400) ** 0.5, rel=1e-6)


def test_one_job_is_not_slowed_by_others(plan):
    """Random starts of one job alone cost what coordination costs, but for the head room."""
    together = plan(
        "--stall 1.5s --size 1TB --mtbf 9h --gpus 8 --jobs 1 --capacity 100GB/s --bandwidth 10GB/s"
    )["shared"]
    assert together["price"] == 0.0
    assert together["random_phases"]["waste_total"] == pytest.approx(together["waste_with_write"], rel=0.01)


@pytest.mark.parametrize(
    ("num_jobs", "capacity", "longest_s"),
    [(2, "8GB/s", 350.0), (60, "200GB/s", 420.0), (200, "200GB/s", 1_400.0)],
)
def test_starts_at_random_are_never_worse_than_all_at_once(plan, num_jobs, capacity, longest_s):
    """At worst all the others write all the time: each write then takes what one after a common start takes."""
    together = plan(
        f"--stall 1.5s --size 1.4TB --mtbf 9h --gpus 256 --jobs {num_jobs} --capacity {capacity}"
    )["shared"]
    assert together["aligned"]["write_s"] == pytest.approx(longest_s)
    assert together["random_phases"] == together["aligned"]
