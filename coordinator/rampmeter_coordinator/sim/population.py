"""A mixed fleet of asynchronous jobs, and what no coordinator can beat: the priced bound.

The mix of research/policy.md 5: 8 to 2,048 GPUs, 1 to 10 GB and 0.36 GB/s per GPU, stalls of 0.3 to 8 s, 50,000
GPU-hours per failure times 2^-1..2^1. The bound is the convex problem of the design (Interval) solved for what the jobs
really are: no policy with the same budget can waste less to first order in T / M.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from rampmeter.core import interval as formulas
from rampmeter.core.interval import Load
from rampmeter_coordinator.model import pricing
from rampmeter_coordinator.model.asked import Asked
from rampmeter_coordinator.sim.job import JobSpec

GB = 1e9
PIPE_BYTES_PER_S_PER_GPU = 0.36 * GB
RESTART_S = 120.0
"""From a failure to the next attempt, without the read; long enough for a dead process's lease to have expired."""


def mixed_fleet(num_jobs: int, seed: int, *, share_preempted: float = 0.0) -> list[JobSpec]:
    """`num_jobs` different jobs, the same for the same seed."""
    rng = random.Random(seed)
    return [_job(number, rng, share_preempted) for number in range(num_jobs)]


def _job(number: int, rng: random.Random, share_preempted: float) -> JobSpec:
    num_gpus = 8 * round(2.0 ** rng.uniform(0.0, 8.0))
    gpu_hours = formulas.PRIOR_GPU_HOURS_PER_FAILURE * 2.0 ** rng.uniform(-1.0, 1.0)
    return JobSpec(
        uid=f"{number + 1:032x}",
        num_gpus=num_gpus,
        num_bytes=int(num_gpus * rng.uniform(1.0, 10.0) * GB),
        stall_s=0.3 * (8.0 / 0.3) ** rng.random(),
        mtbf_s=gpu_hours * 3600.0 / num_gpus,
        restart_s=RESTART_S,
        pipe_bytes_per_s=int(PIPE_BYTES_PER_S_PER_GPU * num_gpus),
        eps=formulas.DEFAULT_EPS,
        share_preempted=share_preempted,
    )


def capacity_for(specs: Sequence[JobSpec], load: float, utilisation: float) -> int:
    """The capacity in bytes/s of which the jobs' own periods, at price 0, would ask the share `load`.

    A job's own period depends a little on the capacity (eps times its write time): a few rounds find the fixed point.
    """
    capacity = 1e15
    for _ in range(20):
        asked = sum(spec.num_bytes / _own_period(spec, utilisation * capacity) for spec in specs)
        capacity = asked / load
    return int(capacity)


def _own_period(spec: JobSpec, budget_bytes_per_s: float) -> float:
    return formulas.period(_cost(spec, budget_bytes_per_s), spec.mtbf_s)


def _cost(spec: JobSpec, budget_bytes_per_s: float) -> float:
    write_s = spec.alone_s(budget_bytes_per_s)
    return formulas.cost(spec.stall_s, write_s, spec.eps, synchronous=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The optimum under sum b/T <= budget.

    price_gpu_s_per_byte   of a byte; 0 where the budget is not the bottleneck
    waste                  by job, in the order of the specs: share of the time that training is up, without restarts
    """

    price_gpu_s_per_byte: float
    waste: tuple[float, ...]


def priced_bound(specs: Sequence[JobSpec], budget_bytes_per_s: float) -> Bound:
    """theory.md 3.1: T = max(h W, period(C + price b / n)), waste C/T + (T/2 + W)/M, W the time alone."""
    loads = [_load(spec, budget_bytes_per_s) for spec in specs]
    price = pricing.solve(Asked.of(loads), budget_bytes_per_s)
    return Bound(
        price_gpu_s_per_byte=price,
        waste=tuple(
            _waste(d, price, s.alone_s(budget_bytes_per_s)) for s, d in zip(specs, loads, strict=True)
        ),
    )


def _load(spec: JobSpec, budget_bytes_per_s: float) -> Load:
    return Load(
        num_bytes=spec.num_bytes,
        num_gpus=spec.num_gpus,
        cost_s=_cost(spec, budget_bytes_per_s),
        write_s=spec.stall_s + spec.alone_s(budget_bytes_per_s),
        mtbf_s=spec.mtbf_s,
    )


def _waste(load: Load, price: float, transfer_s: float) -> float:
    waste = formulas.waste(
        load.interval_s(price), load.cost_s, load.mtbf_s, write_s=transfer_s, restart_s=0.0
    )
    return waste.total
