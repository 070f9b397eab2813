"""Spot against on-demand capacity, in the unit that decides: money per useful GPU-hour.

Spot stops winning where its goodput falls to the break-even: spot price / what a useful GPU-hour costs on demand.
"""

from dataclasses import dataclass, replace

from rampmeter.core.interval import Waste
from rampmeter.planner.answer import Answer, answer
from rampmeter.planner.job import Job

_RATE_PRECISION = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotTerms:
    """What spot capacity is like. notice_s: from the warning to the end, None = no warning."""

    price_per_gpu_hour: float
    mtbf_s: float
    restart_s: float
    wait_s: float
    notice_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What a warning is worth. `save_s` None: unknown how long a save takes."""

    notice_s: float
    save_s: float | None
    goodput: float

    @property
    def fits(self) -> bool | None:
        return None if self.save_s is None else self.save_s <= self.notice_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """The same run on spot capacity.

    saved_share: of the price of a useful GPU-hour on demand; below 0 where spot is dearer.
    restart_limit_s and mtbf_limit_s: where spot stops winning if only that figure changes; None = it never wins.
    """

    job: Job
    found: Answer
    cost_per_useful_gpu_hour: float | None
    saved_share: float | None
    break_even_goodput: float
    restart_limit_s: float | None
    mtbf_limit_s: float | None
    notice: Notice | None

    @property
    def wins(self) -> bool:
        """A useful GPU-hour is cheaper than on demand."""
        return self.found.goodput > self.break_even_goodput


def spot(job: Job, on_demand: Answer, price_per_gpu_hour: float, terms: SpotTerms) -> Spot | None:
    """The comparison at the same way of writing; None if on demand nothing gets done at all."""
    if on_demand.goodput <= 0.0:
        return None
    moved = there(job, terms)
    found = answer(moved)
    break_even = terms.price_per_gpu_hour * on_demand.goodput / price_per_gpu_hour
    wins = found.goodput > break_even
    cost = terms.price_per_gpu_hour / found.goodput if found.goodput else None
    return Spot(
        job=moved,
        found=found,
        cost_per_useful_gpu_hour=cost,
        saved_share=None if cost is None else 1.0 - cost * on_demand.goodput / price_per_gpu_hour,
        break_even_goodput=break_even,
        restart_limit_s=_restart_limit_s(moved, found.waste, break_even) if wins else None,
        mtbf_limit_s=_mtbf_limit_s(moved, break_even) if wins else None,
        notice=None if terms.notice_s is None else _notice(moved, terms.notice_s),
    )


def there(job: Job, terms: SpotTerms) -> Job:
    """The job on spot capacity."""
    return replace(job, mtbf_s=terms.mtbf_s, restart_s=terms.restart_s, wait_s=terms.wait_s)


def _restart_limit_s(job: Job, lost: Waste, break_even: float) -> float:
    down_s = job.mtbf_s * (1.0 - break_even - lost.write - lost.rework)
    return down_s * (1.0 - job.failed_share) - job.wait_s


def _mtbf_limit_s(job: Job, break_even: float) -> float:
    """By bisection: goodput rises with M, also because the interval follows."""
    low, high = 0.0, job.mtbf_s
    while high - low > _RATE_PRECISION * high:
        middle = (low + high) / 2.0
        wins = answer(replace(job, mtbf_s=middle)).goodput > break_even
        low, high = (low, middle) if wins else (middle, high)
    return high


def _notice(job: Job, notice_s: float) -> Notice:
    """If every interruption is announced and every save is in time, nothing but the restarts is lost.

    No work is redone, and no periodic checkpoint is needed.
    """
    return Notice(
        notice_s=notice_s,
        save_s=job.stall_s if job.synchronous else job.write_s,
        goodput=max(0.0, 1.0 - job.down_s / job.mtbf_s),
    )
