"""One writer's report of a time, beside what it could have used: whether it speaks of slow storage or of a full one.

A blocked writer is compared with what it has shown to be able to use, not with what it was given. Decides no cap.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rampmeter_coordinator.model.habits import is_unfilled
from rampmeter_coordinator.model.report import Report

SLOW_SHARE = 0.88
"""Less than this share of what it could use is slow: below it noise and neighbours are no explanation."""

TIGHT_SHARE = 0.97
"""Less than this share of what is due: storage has no more than what is given out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One writer's report of a time.

    due_bytes_per_s         its grant; if that is its own maximum, what it got when that was set
    could_use_bytes_per_s   the same, but not far above what it usually gets
    """

    report: Report
    begun_s: float
    ended_s: float
    due_bytes_per_s: float
    could_use_bytes_per_s: float
    is_stranger: bool

    @property
    def middle_s(self) -> float:
        """When it was: before or after a change of the grants."""
        return (self.begun_s + self.ended_s) / 2.0

    @property
    def rate_bytes_per_s(self) -> float:
        """Its part of what storage did in that time; what comes before its first and behind its last byte counts 0."""
        return self.report.num_bytes / max(self.report.total_s, self.ended_s - self.begun_s)

    def share_before(self, at_s: float) -> float:
        """How much of its time lies before that: all of it, a part, or nothing."""
        took_s = max(self.report.total_s, self.ended_s - self.begun_s)
        return min(1.0, max(0.0, at_s - self.begun_s) / took_s)

    @property
    def is_limited(self) -> bool:
        """It was granted its own maximum, not a share of what there was."""
        return self.due_bytes_per_s < self.report.bytes_per_s

    @property
    def is_unfilled(self) -> bool:
        """It is blocked, and does not fill its grant."""
        return self.report.is_blocked and is_unfilled(self.report)

    @property
    def is_slow(self) -> bool:
        """It is blocked, and gets much less than it could use."""
        return self._gets_less_than(SLOW_SHARE * self.could_use_bytes_per_s)

    @property
    def is_tight(self) -> bool:
        """It is blocked, and does not quite get what is due."""
        return self._gets_less_than(TIGHT_SHARE * self.due_bytes_per_s)

    def _gets_less_than(self, bytes_per_s: float) -> bool:
        return self.report.is_blocked and self.report.filled * self.report.bytes_per_s < bytes_per_s


def rate_one_after_another(samples: Sequence[Sample]) -> float:
    """What their writers got in sum, in bytes/s, from the beginning of the first to the end of the last."""
    took_s = max(sample.ended_s for sample in samples) - min(sample.begun_s for sample in samples)
    longest_s = max(sample.report.total_s for sample in samples)  # no report is believed to be of no time
    return sum(sample.report.num_bytes for sample in samples) / max(took_s, longest_s)
