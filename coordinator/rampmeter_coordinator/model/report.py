"""What one writer did between two of its renewals, and what can be read from it alone."""

from dataclasses import dataclass

BLOCKED_SHARE = 0.9
"""In write and sync for more than this share of its time: only such a writer can tell of slow storage."""

IDLE_SHARE = 0.05
"""Asleep in its bucket for more than this share: it fills its grant and could use more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Differences between two renewals, not totals.

    bytes_per_s   its grant in that time, the smallest in force; 0 = it could not write, and says nothing
    num_bytes     bytes that left the host
    throttled_s   asleep in its bucket; blocked_s in write, sync and close; busy_s computing
    """

    bytes_per_s: int
    num_bytes: int
    throttled_s: float
    blocked_s: float
    busy_s: float

    @property
    def total_s(self) -> float:
        return self.throttled_s + self.blocked_s + self.busy_s

    @property
    def is_blocked(self) -> bool:
        return self.blocked_s > BLOCKED_SHARE * self.total_s

    @property
    def is_held_back(self) -> bool:
        """By its grant: it sleeps in its bucket."""
        return self.throttled_s > IDLE_SHARE * self.total_s

    @property
    def tells_of_storage(self) -> bool:
        """It waits for storage or for its grant: who computes has no use for more of either."""
        return self.is_blocked or self.is_held_back

    @property
    def filled(self) -> float:
        """How much of its grant it got while it was not computing; 1 = all."""
        asked_s = self.throttled_s + self.blocked_s
        return self.num_bytes / (asked_s * self.bytes_per_s) if asked_s > 0.0 else 1.0

    @property
    def achieved_bytes_per_s(self) -> float:
        return self.num_bytes / self.total_s

    def plus(self, other: "Report") -> "Report":
        """Both together, judged by the smaller grant."""
        return Report(
            bytes_per_s=min(self.bytes_per_s, other.bytes_per_s),
            num_bytes=self.num_bytes + other.num_bytes,
            throttled_s=self.throttled_s + other.throttled_s,
            blocked_s=self.blocked_s + other.blocked_s,
            busy_s=self.busy_s + other.busy_s,
        )
