"""The most that each writer has shown to be able to use: what it leaves unused of its grant is for others.

Learned from samples alone: a writer that is never asleep in its bucket and does not fill its grant is limited by its
CPU, its network or its part of storage. It gets a little more than it achieved, and twice as much whenever it fills
that. What a job can use it can use in its next save too, so maxima outlive leases. Decides no rate.
"""

from rampmeter_coordinator.model.report import Report

UNFILLED_SHARE = 0.92
"""Below this share of its grant a writer that is never asleep is given less."""

HEADROOM = 1.06
"""How much above what it achieved: room for noise, and for showing that it can do more."""

RISE = 2.0

SMALLEST_SHARE = 0.001
"""No maximum falls below this share of the ceiling: whatever was reported, a writer can work its way up."""

MAX_REMEMBERED = 4096
"""The maxima of the newest writers are kept: names cost no memory without bound."""


class Maxima:
    """Maxima by job, in bytes/s, and the one for jobs that are not known yet."""

    __slots__ = ("_known", "_smallest_bytes_per_s", "newcomer_bytes_per_s")

    def __init__(self, ceiling_bytes_per_s: int) -> None:
        self._known: dict[str, int] = {}
        self._smallest_bytes_per_s = max(1, int(SMALLEST_SHARE * ceiling_bytes_per_s))
        self.newcomer_bytes_per_s: int | None = None
        """What a writer gets that nothing is known of; None = what it wants."""

    def of(self, uid: str) -> int | None:
        """The writer's maximum; None = what it wants."""
        return self._known.get(uid, self.newcomer_bytes_per_s)

    def limits(self, uid: str, granted_bytes_per_s: int) -> bool:
        """This grant is what the writer's maximum allows, not what others left to it."""
        maximum = self.of(uid)
        return maximum is not None and granted_bytes_per_s >= 0.98 * maximum

    def learn(self, uid: str, report: Report) -> None:
        """Take in one sample of this writer."""
        if report.is_held_back:
            if self.limits(uid, report.bytes_per_s):
                self._set(uid, int(RISE * report.bytes_per_s))
        elif report.achieved_bytes_per_s < UNFILLED_SHARE * report.bytes_per_s:
            self._set(uid, int(HEADROOM * report.achieved_bytes_per_s))

    def _set(self, uid: str, maximum_bytes_per_s: int) -> None:
        self._known.pop(uid, None)
        self._known[uid] = max(self._smallest_bytes_per_s, maximum_bytes_per_s)
        if len(self._known) > MAX_REMEMBERED:
            del self._known[next(iter(self._known))]
