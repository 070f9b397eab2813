"""What jobs lose, as shares: measured, by the model of their plans, and by the same model without coordination. Pure.

The model is `core.interval.waste` with the interval that a job was told and its measured C, W, R and M; without
coordination it is `core.sharing`. Shares of a pool are weighted by GPUs, of no job by more than MOST_GPUS: an absurd
claim must not stand for the pool. The model is for shares well below 1; where it says more, the job loses all.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rampmeter.core import interval as formulas
from rampmeter.core import sharing
from rampmeter.core.interval import Waste
from rampmeter.core.sharing import SharingJob
from rampmeter_coordinator.model import estimates, failures, planning, restarts
from rampmeter_coordinator.model.failures import MOST_GPUS
from rampmeter_coordinator.model.goodput import Account
from rampmeter_coordinator.model.records import Job
from rampmeter_coordinator.model.views import GoodputView, WasteView

GOOD_FOR_S = 60.0
GOOD_FOR_S_PER_JOB = 0.03
"""How long the answer for a pool is shown again: it costs about 30 us a job, and looks are many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLosses:
    """What the jobs that run lose, and how often they fail; None where nobody runs."""

    num_gpus: int
    mtbf_s: float | None
    restart_s: float | None
    modelled: WasteView | None
    uncoordinated: WasteView | None
    aligned: WasteView | None


def measured(account: Account) -> GoodputView | None:
    """The account as shares; None where nothing was observed."""
    whole = max(account.observed, account.lost)
    if whole <= 0.0:
        return None
    return GoodputView(
        useful=account.useful / whole,
        stalled=account.stalled / whole,
        waiting=account.waiting / whole,
        rework=account.rework / whole,
        restart=account.restart / whole,
        discarded=account.discarded / whole,
    )


def planned(job: Job) -> WasteView:
    """What the job's plan costs it, by the model."""
    return _view(_bounded(_planned(job)))


def of_pool(jobs: Sequence[Job], capacity_bytes_per_s: int) -> PoolLosses:
    """Of these jobs on a storage that sustains `capacity_bytes_per_s`."""
    if not jobs:
        return PoolLosses(
            num_gpus=0, mtbf_s=None, restart_s=None, modelled=None, uncoordinated=None, aligned=None
        )
    weights = [min(job.num_gpus, MOST_GPUS) for job in jobs]
    alone = [_sharing(job) for job in jobs]
    return PoolLosses(
        num_gpus=sum(weights),
        mtbf_s=_mean(map(failures.mtbf_s, jobs), weights),
        restart_s=_mean(map(restarts.restart_s, jobs), weights),
        modelled=_mean_waste(map(_planned, jobs), weights),
        uncoordinated=_mean_waste(sharing.random_phases(alone, capacity_bytes_per_s), weights),
        aligned=_mean_waste(sharing.aligned(alone, capacity_bytes_per_s), weights),
    )


def _planned(job: Job) -> Waste:
    load = planning.load_of(job)
    write_s = 0.0 if job.terms.synchronous else load.write_s
    restart_s = restarts.restart_s(job)
    return formulas.waste(job.plan.interval_s, load.cost_s, load.mtbf_s, write_s=write_s, restart_s=restart_s)


def _sharing(job: Job) -> SharingJob:
    return SharingJob(
        load=planning.load_of(job),
        stall_s=planning.DEFAULT_STALL_S if job.stall_s is None else job.stall_s,
        eps=estimates.eps_of(job),
        synchronous=job.terms.synchronous,
        restart_s=restarts.restart_s(job),
        max_bytes_per_s=job.known.max_bytes_per_s,
    )


def _mean(values: Iterable[float], weights: Sequence[int]) -> float:
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)


def _mean_waste(wastes: Iterable[Waste], weights: Sequence[int]) -> WasteView:
    found = [_bounded(waste) for waste in wastes]
    return _view(
        Waste(
            write=_mean([waste.write for waste in found], weights),
            rework=_mean([waste.rework for waste in found], weights),
            restart=_mean([waste.restart for waste in found], weights),
        )
    )


def _bounded(waste: Waste) -> Waste:
    """No more than all, in the same proportions."""
    whole = max(1.0, waste.total)
    return Waste(write=waste.write / whole, rework=waste.rework / whole, restart=waste.restart / whole)


def _view(waste: Waste) -> WasteView:
    return WasteView(write=waste.write, rework=waste.rework, restart=waste.restart, total=waste.total)
