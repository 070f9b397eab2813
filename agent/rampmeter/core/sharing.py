"""What jobs on one storage lose when nobody coordinates them: each at its own period, all writes sharing the storage.

Pure scalar model, two cases. `random_phases`: writes overlap by chance, as in processor sharing, W = S / (1 - rho) with
S the write time alone and rho the busy share of the storage; less where a job alone cannot fill the storage
(`slow_down`). `aligned`: all start in the same moment, as after a maintenance window or an incident, and the storage
serves all bytes before anybody is done. In both a job reacts as the formulas tell it: C depends on W through eps, and a
synchronous job's C is W; a next write begins when the last has ended, so T >= W. Nothing is decided here: it is the
yardstick beside the priced interval of `core.interval`.

Where it differs from a fleet: T is what each job would choose at this W, not the coordinated one (200 jobs of 1.4 TB
on 100 GB/s, all aligned: 2,800 s and 13.0 %; at the coordinated 3,500 s 14.1 %). Starts are taken as random; real
intervals are more regular, so W is 1.3 to 1.4 times what a simulation of regular intervals gives from rho = 0.8 on.
Jobs that do nothing but write share k + 1 ways, in truth k. Aligned jobs are taken to stay aligned, whatever their
intervals: what the first round costs, if it never ended.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rampmeter.core.interval import MIN_INTERVAL_S, Load, Waste, cost, period, waste

_PRECISION = 1e-7
"""Of ln(rho / (1 - rho)): relative, of W/S where the storage is busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingJob:
    """One of the jobs. Of `load` its cost and write time are not used: they follow from the sharing.

    stall_s         training blocked by a checkpoint, without eps
    eps             slow-down of training while it writes, as a share of the write time
    synchronous     training stands still for the whole write
    max_bytes_per_s what the job can write at most when it is alone; None = all that the storage takes
    """

    load: Load
    stall_s: float
    eps: float
    synchronous: bool
    restart_s: float
    max_bytes_per_s: int | None

    def alone_s(self, capacity_bytes_per_s: float) -> float:
        """S: the write time with the storage to itself."""
        most = capacity_bytes_per_s if self.max_bytes_per_s is None else self.max_bytes_per_s
        return self.load.num_bytes / min(most, capacity_bytes_per_s)

    def cost_s(self, write_s: float) -> float:
        """C at this write time."""
        return cost(self.stall_s, write_s, self.eps, synchronous=self.synchronous)

    def interval_s(self, write_s: float) -> float:
        """T that the job would choose at this write time, never below it."""
        load = self.load
        own_s = period(self.cost_s(write_s), load.mtbf_s)
        if load.wish_s is not None and load.wish_s < own_s:
            own_s = load.wish_s
        return max(own_s, load.minimum_s, write_s, MIN_INTERVAL_S)

    def waste_at(self, write_s: float) -> Waste:
        """Shares that the job loses if its writes take this long. A synchronous job does no work beside them."""
        return waste(
            self.interval_s(write_s),
            self.cost_s(write_s),
            self.load.mtbf_s,
            write_s=0.0 if self.synchronous else write_s,
            restart_s=self.restart_s,
        )


def random_phases(jobs: Sequence[SharingJob], capacity_bytes_per_s: float) -> list[Waste]:
    """What each job loses if all write whenever they want, at random."""
    return _wastes(jobs, random_write_times(jobs, capacity_bytes_per_s))


def aligned(jobs: Sequence[SharingJob], capacity_bytes_per_s: float) -> list[Waste]:
    """What each job loses if all start their writes in the same moment."""
    return _wastes(jobs, aligned_write_times(jobs, capacity_bytes_per_s))


def random_write_times(jobs: Sequence[SharingJob], capacity_bytes_per_s: float) -> list[float]:
    """W of each job, in seconds, at the rho that its own intervals bring about."""
    alone = [job.alone_s(capacity_bytes_per_s) for job in jobs]
    lanes = [_lanes(job, capacity_bytes_per_s) for job in jobs]

    def busy_at(rho: float) -> float:
        return (
            sum(
                job.load.num_bytes / job.interval_s(alone_s * slow_down(rho, wide))
                for job, alone_s, wide in zip(jobs, alone, lanes, strict=True)
            )
            / capacity_bytes_per_s
        )

    rho = _steady(busy_at)
    return [alone_s * slow_down(rho, wide) for alone_s, wide in zip(alone, lanes, strict=True)]


def aligned_write_times(jobs: Sequence[SharingJob], capacity_bytes_per_s: float) -> list[float]:
    """W of each job, in seconds: all end together, or when the job's own maximum lets it."""
    together_s = sum(job.load.num_bytes for job in jobs) / capacity_bytes_per_s
    return [max(job.alone_s(capacity_bytes_per_s), together_s) for job in jobs]


def slow_down(rho: float, lanes: float) -> float:
    """W/S on a storage that is busy for a share rho and takes `lanes` such writers at their full rate.

    1 / (1 - rho) for one lane, which is processor sharing; Sakasegawa's approximation (1977) for more.
    """
    exponent = math.sqrt(2.0 * (lanes + 1.0)) - 1.0
    return 1.0 + math.pow(rho, exponent) / (lanes * (1.0 - rho))


def _lanes(job: SharingJob, capacity_bytes_per_s: float) -> float:
    most = job.max_bytes_per_s
    return 1.0 if most is None else max(1.0, capacity_bytes_per_s / most)


def _wastes(jobs: Sequence[SharingJob], write_times: Sequence[float]) -> list[Waste]:
    return [job.waste_at(write_s) for job, write_s in zip(jobs, write_times, strict=True)]


def _steady(busy_at: Callable[[float], float]) -> float:
    """The rho at which the jobs write just as much as keeps the storage busy for rho: busy_at(rho) = rho.

    busy_at falls, because slower writes make longer intervals. Both sides look like power laws, so the root is sought
    on logarithms, over ln(rho / (1 - rho)): about ten looks at all jobs, where plain bisection takes 30.
    """
    free = busy_at(0.0)
    if free <= 0.0:
        return 0.0

    def surplus(place: float) -> float:
        """Above 0 where the jobs write more than keeps the storage that busy."""
        rho = _share(place)
        return math.log(busy_at(rho) / rho)

    high = math.log(free / (1.0 - free)) if free < 1.0 else 1.0
    return _share(_root(surplus, high - 1.0, high))


def _share(place: float) -> float:
    return 1.0 / (1.0 + math.exp(-place))


def _root(falling: Callable[[float], float], low: float, high: float) -> float:
    """Where a falling function crosses 0: false position that halves the weight of an end that stays (Illinois)."""
    at_low, at_high = falling(low), falling(high)
    while at_low < 0.0:
        high, at_high, low = low, at_low, low - 2.0
        at_low = falling(low)
    while at_high > 0.0:
        low, at_low, high = high, at_high, high + 2.0
        at_high = falling(high)
    stayed = 0
    while high - low > _PRECISION:
        middle = (low * at_high - high * at_low) / (at_high - at_low)
        value = falling(middle)
        if abs(value) <= _PRECISION:
            return middle
        if value > 0.0:
            low, at_low = middle, value
            at_high *= 0.5 if stayed > 0 else 1.0
            stayed = 1
        else:
            high, at_high = middle, value
            at_low *= 0.5 if stayed < 0 else 1.0
            stayed = -1
    return low
