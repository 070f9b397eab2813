"""The flow of a whole job, as rank 0 steers it: a rate for all ranks together, and the sum of what they write.

A rate that is set before the ranks have begun is kept until they have: what begins has no rate of its own.
"""

import threading

from rampmeter.core.errors import LeaseLost
from rampmeter.ranks.attending import RankSave
from rampmeter.ranks.conducting import Conductor
from rampmeter.throttle import FlowCounters, Throttle


class JobFlow:
    """One per save, on rank 0. `throttle` is that of rank 0's own writer."""

    def __init__(self, conductor: Conductor, throttle: Throttle) -> None:
        self.throttle = throttle
        self._conductor = conductor
        self._lock = threading.Lock()
        self._save: RankSave | None = None
        self._allowed: tuple[int | None, float | None] = (0, None)
        self._version = 0

    def joined(self, save: RankSave) -> None:
        """All that is set from now on reaches the ranks, and so does what was set before."""
        with self._lock:
            self._save = save
            self._version = self._conductor.set_rate(*self._allowed)

    def set_rate(self, bytes_per_s: int | None, deadline_s: float | None = None) -> None:
        """What all ranks together may write from now on."""
        with self._lock:
            self._allowed = (bytes_per_s, deadline_s)
            if self._save is not None:
                self._version = self._conductor.set_rate(bytes_per_s, deadline_s)

    def abort(self, reason: str) -> None:
        """The save fails on all ranks, for this reason."""
        self.throttle.abort(reason)
        with self._lock:
            save = self._save
        if save is not None:
            save.failed(LeaseLost(reason))

    def counters(self) -> FlowCounters:
        """Of all ranks together; before they have begun, of this one."""
        with self._lock:
            has_begun = self._save is not None
        told = self._conductor.counters() if has_begun else None
        return told or self.throttle.counters()

    @property
    def is_followed(self) -> bool:
        """Whether the writers of all ranks have the newest rate, or write no more."""
        with self._lock:
            return self._save is None or self._conductor.have_applied(self._version)
