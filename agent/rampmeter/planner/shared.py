"""The answer for many such jobs on one storage: price of a byte, interval that fits, and what a herd would do."""

from dataclasses import dataclass, replace

from rampmeter.core.interval import demand, solve_price, waste
from rampmeter.core.sharing import SharingJob, aligned_write_times, random_write_times
from rampmeter.planner.job import Job

USABLE_SHARE = 0.8
"""u: what is planned of the capacity, the coordinator's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """What the jobs have in common."""

    num_jobs: int
    capacity_bytes_per_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Herd:
    """What each job would do alone among the others. `waste_total` counts the write time."""

    write_s: float
    interval_s: float
    waste_total: float

    @property
    def never_rests(self) -> bool:
        """The next write begins as soon as the last has ended."""
        return self.write_s >= self.interval_s * (1.0 - 1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """All jobs together. price in GPU-seconds per byte; demand at the interval.

    waste_total counts the write time as `--write` says; waste_with_write that of the coordinated write, for comparison
    with the herds.
    """

    price: float
    interval_s: float
    demand_bytes_per_s: float
    own_demand_bytes_per_s: float
    waste_total: float
    write_s: float
    waste_with_write: float
    random_phases: Herd
    aligned: Herd


def shared(job: Job, storage: Storage) -> Shared:
    """The priced interval; equal jobs, so that one stands for all. The job's size must be known."""
    usable = USABLE_SHARE * storage.capacity_bytes_per_s
    among = job.among_others
    all_of_them, capacity = [among] * storage.num_jobs, storage.capacity_bytes_per_s
    together_s = aligned_write_times(all_of_them, capacity)[0]
    write_s = among.alone_s(usable)
    one = _at_write_time(job, write_s)
    budget = usable / storage.num_jobs
    price = solve_price([one.load], budget, base_price=job.base_price)
    interval_s = one.load.interval_s(price)
    return Shared(
        price=price,
        interval_s=interval_s,
        demand_bytes_per_s=storage.num_jobs * demand([one.load], price),
        own_demand_bytes_per_s=storage.num_jobs * demand([one.load], job.base_price),
        waste_total=_lost(one, interval_s, one.counted_write_s),
        write_s=write_s,
        waste_with_write=_lost(one, interval_s, write_s),
        # at worst all others write all the time; the model of random starts counts one job too many there
        random_phases=_herd(among, min(random_write_times(all_of_them, capacity)[0], together_s)),
        aligned=_herd(among, together_s),
    )


def _at_write_time(job: Job, write_s: float) -> Job:
    """The job with the write time that the storage can give it, if that is longer than what was said."""
    if job.synchronous:
        return replace(job, stall_s=max(job.stall_s, write_s), write_s=max(job.stall_s, write_s))
    return replace(job, write_s=max(job.write_s or 0.0, write_s))


def _lost(job: Job, interval_s: float, write_s: float) -> float:
    return waste(interval_s, job.cost_s, job.mtbf_s, write_s=write_s, restart_s=job.down_s).total


def _herd(job: SharingJob, write_s: float) -> Herd:
    return Herd(write_s=write_s, interval_s=job.interval_s(write_s), waste_total=job.waste_at(write_s).total)
