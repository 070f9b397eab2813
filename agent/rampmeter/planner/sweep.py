"""The waste over the interval: where the best one stands, and how flat the curve is around it."""

from dataclasses import dataclass

from rampmeter.core.interval import Waste
from rampmeter.planner.answer import Answer, waste_at
from rampmeter.planner.job import Job

_DOUBLINGS = 3
"""From an eighth of the best interval to eight times it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The waste at one interval. `note`: what is special about it, or empty."""

    interval_s: float
    waste: Waste
    note: str = ""


def points(job: Job, found: Answer, *, per_doubling: int = 2) -> list[Point]:
    """Intervals in even ratios around the best one, and the asked one in its place."""
    best_s = found.best_interval_s
    steps = _DOUBLINGS * per_doubling
    intervals = {best_s * 2.0 ** (step / per_doubling): "" for step in range(-steps, steps + 1)}
    intervals[best_s] = "best"
    if found.interval_s != best_s:
        intervals[found.interval_s] = "asked"
    return [
        Point(interval_s=interval_s, waste=waste_at(job, interval_s), note=note)
        for interval_s, note in sorted(intervals.items())
    ]
