"""Where time went, as the ledger measured it from outside, against what the simulator knows."""

import pytest

from rampmeter_coordinator.model.goodput import Account
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.sim.job import Job, JobSpec
from rampmeter_coordinator.sim.training import Sums
from rampmeter_coordinator.sim.world import START_S, World

DAY_S = 86_400.0
GB = 10**9
POOL = PoolConfig(name="pool", capacity_bytes_per_s=50 * GB)


def spec(number: int, share_preempted: float) -> JobSpec:
    return JobSpec(
        uid=f"{number:032x}",
        num_gpus=64 * (1 + number % 4),
        num_bytes=(100 + 50 * (number % 5)) * GB,
        stall_s=3.0 + number % 3,
        mtbf_s=3 * 3600.0,
        restart_s=300.0,
        lead_s=5.0,
        tail_s=1.0,
        eps=0.02,
        share_preempted=share_preempted,
    )


def a_day(share_preempted: float) -> tuple[World, list[Job]]:
    """Eight jobs, each of which fails eight times or so."""
    world = World(POOL, seed=5)
    jobs = [Job(world, spec(number, share_preempted), 5) for number in range(8)]
    for job in jobs:
        world.at(START_S, job.start)
    world.run_until(DAY_S)
    return world, jobs


def truth(world: World, jobs: list[Job]) -> Account:
    """GPU-seconds. The queue for a restore is part of the restart here."""
    sums = [(job.spec.num_gpus, job.training.sums(world.now_s)) for job in jobs]

    def of(*names: str) -> float:
        return sum(num_gpus * getattr(found, name) for num_gpus, found in sums for name in names)

    assert isinstance(sums[0][1], Sums)
    return Account(
        observed=of("observed_s"),
        stalled=of("stall_s", "slowed_s"),
        rework=of("rework_s"),
        restart=of("restart_s", "restore_s"),
    )


@pytest.mark.parametrize("share_preempted", [0.0, 0.05])
def test_a_day_of_failures_and_preemptions_is_accounted_for_as_it_was(share_preempted: float) -> None:
    """Each loss within a few per cent; how it came to be told is heartbeats and saves only."""
    world, jobs = a_day(share_preempted)
    true, measured = truth(world, jobs), world.ledger.pool_view(world.now_s).account_gpu_s
    assert measured.observed == pytest.approx(true.observed, rel=0.01)
    assert measured.stalled == pytest.approx(true.stalled, rel=0.02)
    assert measured.rework == pytest.approx(true.rework, rel=0.06)
    assert measured.restart + measured.waiting == pytest.approx(true.restart, rel=0.05)
    assert measured.discarded == 0.0
    assert measured.useful / measured.observed == pytest.approx(true.useful / true.observed, abs=0.003)
    num_failures = sum(job.training.sums(world.now_s).num_failures for job in jobs)
    assert (
        0.85 * num_failures <= world.ledger.totals.failures <= num_failures
    )  # not those within R of a start
    assert world.ledger.totals.absurd == 0
