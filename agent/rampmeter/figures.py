"""What an attempt knows of its own saves: size, durations, its own speed, and what they cost training.

Only committed saves teach. One wild save moves no figure to more than twice what it was: it is the storage's business,
or a pause of the machine, and what is lasting shows in the saves after it.
"""

from rampmeter.core import interval
from rampmeter.report import SaveReport
from rampmeter.throttle import FlowCounters

WEIGHT_OF_NEW = 0.3
MOST_GROWTH = 2.0
SHORTEST_SAMPLE_S = 1.0
"""Less time than this in write and CPU says nothing about how fast a job can write."""

_SMALLEST = 1e-3
"""What grows from nothing grows from here: seconds, or a share."""


class Figures:
    """None = not known yet. `eps` begins with the prior."""

    def __init__(self) -> None:
        self.num_bytes: int | None = None
        self.stall_s: float | None = None
        self.write_s: float | None = None
        self.at_work_s: float | None = None
        """The write time without the sleep in the bucket."""
        self.max_bytes_per_s: int | None = None
        self.eps = interval.DEFAULT_EPS
        self._is_measured = False

    def believe_size(self, num_bytes: int) -> bool:
        """The cold-start figure for the bytes of a save; whether it was taken, for lack of a better one."""
        is_news = self.num_bytes is None
        if is_news:
            self.num_bytes = num_bytes
        return is_news

    def believe_stall(self, stall_s: float) -> None:
        """The cold-start figure for the stall of a save."""
        if self.stall_s is None:
            self.stall_s = stall_s

    def learn(self, report: SaveReport, eps: float | None) -> None:
        """A save was committed; what it cost training is `eps`, None = not known."""
        old_stall_s = self.stall_s if self._is_measured else None  # the first measured one replaces a belief
        self._is_measured = True
        self.num_bytes = report.num_bytes
        self.stall_s = _smoothed(old_stall_s, report.stall_s)
        self.write_s = _smoothed(self.write_s, report.write_s)
        self.at_work_s = _smoothed(self.at_work_s, report.at_work_s)
        self.max_bytes_per_s = _own_rate(self.max_bytes_per_s, report.counters)
        if eps is not None:
            self.eps = _smoothed(self.eps, eps)


def _own_rate(old: int | None, counters: FlowCounters) -> int | None:
    """Bytes/s while not asleep in our bucket: what the job writes by itself, whatever its leases allow.

    Storage that others use makes this too small, so it falls slowly and rises at once.
    """
    writing_s = counters.blocked_s + counters.busy_s
    if writing_s < SHORTEST_SAMPLE_S or not counters.done_bytes:
        return old
    new = counters.done_bytes / writing_s
    if old is None:
        return int(new)
    return int(min(new, MOST_GROWTH * old) if new > old else _smoothed(old, new))


def _smoothed(old: float | None, new: float) -> float:
    if old is None:
        return new
    return min(old + WEIGHT_OF_NEW * (new - old), MOST_GROWTH * max(old, _SMALLEST))
