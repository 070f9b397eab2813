"""The answer itself: the interval and what it loses. First-order waste, as everywhere in the project."""

from dataclasses import dataclass

from rampmeter.core.interval import Waste, reason_for, waste
from rampmeter.core.messages import PlanReason
from rampmeter.planner.job import Job

CAUSES = ("write", "rework", "restart")
_TIE = 1e-6
"""At the optimum writing and rework are equal; a difference of rounding decides nothing."""

_AS_GOOD = 0.05
"""A loss this little above another one (relative) is no reason to change anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`waste` at `interval_s`, and the best that another interval could do. `reason` says what decided the best one."""

    interval_s: float
    waste: Waste
    best_interval_s: float
    best_waste: Waste
    reason: PlanReason

    @property
    def goodput(self) -> float:
        """Useful share of the time; 0 where the formula, which overstates large losses, leaves nothing."""
        return max(0.0, 1.0 - self.waste.total)

    @property
    def near_best(self) -> bool:
        """Another interval would not be worth the change."""
        return not self.worth_leaving_for(self.best_waste)

    def worth_leaving_for(self, other: Waste) -> bool:
        """The other loss is smaller by more than rounding and flat curves explain."""
        return self.waste.total > other.total * (1.0 + _AS_GOOD)

    @property
    def dominant(self) -> str:
        """The largest cause of loss; the first of CAUSES where they are equal."""
        shares = {cause: getattr(self.waste, cause) for cause in CAUSES}
        return next(cause for cause, share in shares.items() if share >= max(shares.values()) * (1.0 - _TIE))


def answer(job: Job) -> Answer:
    """The best interval of the job alone, or the asked one judged."""
    best_s = job.load.interval_s(job.base_price)
    interval_s = best_s if job.every_s is None else job.every_s
    return Answer(
        interval_s=interval_s,
        waste=waste_at(job, interval_s),
        best_interval_s=best_s,
        best_waste=waste_at(job, best_s),
        reason=reason_for(job.load, job.base_price),
    )


def waste_at(job: Job, interval_s: float) -> Waste:
    """What the job loses at an interval."""
    return waste(interval_s, job.cost_s, job.mtbf_s, write_s=job.counted_write_s, restart_s=job.down_s)
