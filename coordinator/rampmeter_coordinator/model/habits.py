"""What each writer usually gets, and the most it has shown to be able to use: the rest of its grant is for others.

A writer that is never asleep in its bucket and does not fill its grant is limited by its CPU, its network or its part
of storage. It is given a little more than it achieved, and twice as much whenever it fills that. What a job did in one
save it can do in its next, so habits outlive leases. Decides no rate.
"""

from collections import OrderedDict
from dataclasses import dataclass

from rampmeter_coordinator.model.report import Report

UNFILLED_SHARE = 0.92
"""Below this share of its grant a writer that is never asleep does not fill it."""

HEADROOM = 1.06
"""A maximum is this much above what was achieved: room for noise, and for showing that more can be done."""

AT_MAXIMUM = 0.98
BEYOND_USUAL = 1.0
"""More than this many times what it usually gets is not expected of a writer, whatever it is granted."""

RISE = 2.0
SMOOTHING = 0.1

SMALLEST_SHARE = 0.001
"""No maximum falls below this share of the ceiling: whatever was reported, a writer can work its way up."""

MAX_REMEMBERED = 4096
"""The habits of the newest writers are kept: names cost no memory without bound."""


@dataclass(slots=True, kw_only=True)
class Habit:
    """One writer, in bytes/s. `maximum` None = it has filled what it was given."""

    usual_bytes_per_s: float
    maximum_bytes_per_s: int | None = None


class Habits:
    """The habits of a pool's writers, by job."""

    __slots__ = ("_habits", "_smallest_bytes_per_s")

    def __init__(self, ceiling_bytes_per_s: int) -> None:
        self._habits: OrderedDict[str, Habit] = OrderedDict()
        self._smallest_bytes_per_s = max(1, int(SMALLEST_SHARE * ceiling_bytes_per_s))

    def is_stranger(self, uid: str) -> bool:
        """Nothing is known of this writer."""
        return uid not in self._habits

    def due(self, uid: str, granted_bytes_per_s: int) -> float:
        """The grant; where it is the writer's own maximum, what it got when that was set."""
        habit = self._habits.get(uid)
        if habit is not None and self._is_limited(habit, granted_bytes_per_s):
            return granted_bytes_per_s / HEADROOM
        return granted_bytes_per_s

    def could_use(self, uid: str, granted_bytes_per_s: int) -> float:
        """What is due, but not far above what the writer usually gets."""
        habit, due = self._habits.get(uid), self.due(uid, granted_bytes_per_s)
        return due if habit is None else min(due, max(1.0, BEYOND_USUAL * habit.usual_bytes_per_s))

    def maximum(self, uid: str) -> int | None:
        """The most that the writer should be given; None = what it wants."""
        habit = self._habits.get(uid)
        return None if habit is None else habit.maximum_bytes_per_s

    def got(self, uid: str, bytes_per_s: float) -> None:
        """Nothing unusual: one more sample of what the writer gets."""
        habit = self._remembered(uid, bytes_per_s)
        habit.usual_bytes_per_s += SMOOTHING * (bytes_per_s - habit.usual_bytes_per_s)

    def filled(self, uid: str, report: Report) -> None:
        """The writer was held back by its grant: it can do at least that, and perhaps more."""
        habit = self._remembered(uid, report.achieved_bytes_per_s)
        habit.usual_bytes_per_s = max(habit.usual_bytes_per_s, report.achieved_bytes_per_s)
        if self._is_limited(habit, report.bytes_per_s):
            habit.maximum_bytes_per_s = int(RISE * report.bytes_per_s)

    def limit(self, uid: str, bytes_per_s: float) -> None:
        """The writer did not fill its grant: it is given little more than what it got."""
        habit = self._remembered(uid, bytes_per_s)
        habit.usual_bytes_per_s = bytes_per_s
        habit.maximum_bytes_per_s = max(self._smallest_bytes_per_s, int(HEADROOM * bytes_per_s))

    @staticmethod
    def _is_limited(habit: Habit, granted_bytes_per_s: int) -> bool:
        """The grant is what the maximum allows, not what others left over."""
        maximum = habit.maximum_bytes_per_s
        return maximum is not None and granted_bytes_per_s >= AT_MAXIMUM * maximum

    def _remembered(self, uid: str, bytes_per_s: float) -> Habit:
        habit = self._habits.pop(uid, None) or Habit(usual_bytes_per_s=bytes_per_s)
        self._habits[uid] = habit
        if len(self._habits) > MAX_REMEMBERED:
            self._habits.popitem(last=False)
        return habit


def is_unfilled(report: Report) -> bool:
    """The writer is never asleep and does not fill its grant."""
    return not report.is_held_back and report.achieved_bytes_per_s < UNFILLED_SHARE * report.bytes_per_s
