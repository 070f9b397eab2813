"""The mixed fleet is what the research measured, and its bound is what the design computes."""

import pytest

from rampmeter_coordinator.sim.job import JobSpec
from rampmeter_coordinator.sim.population import capacity_for, mixed_fleet, priced_bound


def test_the_fleet_has_the_sizes_that_it_is_said_to_have():
    fleet = mixed_fleet(300, seed=1)
    assert {8 <= spec.num_gpus <= 2048 for spec in fleet} == {True}
    assert all(1e9 <= spec.num_bytes / spec.num_gpus <= 1e10 for spec in fleet)
    assert all(0.3 <= spec.stall_s <= 8.0 for spec in fleet)
    assert all(25_000 <= spec.mtbf_s * spec.num_gpus / 3600.0 <= 100_000 for spec in fleet)
    assert fleet == mixed_fleet(300, seed=1)
    assert fleet != mixed_fleet(300, seed=2)


@pytest.mark.parametrize("load", [0.5, 0.95, 3.0])
def test_a_price_appears_where_own_periods_ask_for_more_than_may_be_granted(load):
    fleet = mixed_fleet(100, seed=2)
    budget = 0.8 * capacity_for(fleet, load, 0.8)
    assert (priced_bound(fleet, budget).price_gpu_s_per_byte > 0.0) == (load > 0.8)


def test_the_bound_of_equal_jobs_is_the_worked_example_of_the_research():
    """theory.md 3.5, E2: 200 jobs of 1.4 TB at 100 GB/s: 5.444 % with a lag of 0; W = 1.4 TB / 80 GB/s comes on top."""
    fleet = [
        JobSpec(uid=f"{i:032x}", num_gpus=256, num_bytes=1_400 * 10**9, stall_s=1.5, mtbf_s=32_400.0)
        for i in range(200)
    ]
    bound = priced_bound(fleet, 80e9)
    assert bound.price_gpu_s_per_byte == pytest.approx(3.4294e-8, rel=1e-3)
    assert bound.waste[0] == pytest.approx(0.05444 + 17.5 / 32_400.0, rel=1e-3)


def test_a_job_is_as_fast_as_the_slower_of_its_pipe_and_the_budget():
    job = JobSpec(uid="0", num_gpus=8, num_bytes=100, stall_s=1.0, pipe_bytes_per_s=20)
    assert (job.alone_s(50.0), job.alone_s(10.0)) == (5.0, 10.0)
