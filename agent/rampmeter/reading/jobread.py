"""The reading of a whole job, as rank 0 steers it: a rate for all ranks together, and the sum of what they read."""

import threading

from rampmeter.core.errors import LeaseLost
from rampmeter.reading.beats import ReadWord
from rampmeter.throttle import FlowCounters

_NOTHING_YET = FlowCounters(done_bytes=0, throttled_s=0.0, blocked_s=0.0, busy_s=0.0)


class JobRead:
    """One per restore, on rank 0; a ReadFlow. All methods may be called from any thread and wait for nobody.

    The rate is 0 until `set_rate`. A word goes along with each beat of the ranks, and has reached all of them in the
    next one.
    """

    def __init__(self) -> None:
        self.failure: LeaseLost | None = None
        """Why nobody may read on; the first reason stands."""
        self._lock = threading.Lock()
        self._allowed: tuple[int | None, float | None] = (0, None)
        self._counters = _NOTHING_YET
        self._version = self._saying = self._told = self._followed = 0
        self._has_ended = False

    # -- said by the desk --------------------------------------------------------------------------------------

    def set_rate(self, bytes_per_s: int | None, deadline_s: float | None = None) -> None:
        """What all ranks together may read from now on."""
        with self._lock:
            self._allowed = (bytes_per_s, deadline_s)
            self._version += 1

    def abort(self, reason: str) -> None:
        """The restore fails on all ranks, for this reason."""
        with self._lock:
            self.failure = self.failure or LeaseLost(reason)

    def counters(self) -> FlowCounters:
        """Of all ranks together, as far as they have told."""
        with self._lock:
            return self._counters

    @property
    def is_followed(self) -> bool:
        """Whether all ranks obey the newest rate, or read no more."""
        with self._lock:
            return self._has_ended or self._followed == self._version

    def end(self) -> None:
        """No rank reads any more."""
        with self._lock:
            self._has_ended = True

    # -- said by the beats of rank 0 ---------------------------------------------------------------------------

    def word(self, now_s: float) -> ReadWord:
        """What all ranks are told in the beat that rank 0 enters."""
        with self._lock:
            self._saying = self._version
            rate, deadline_s = self._allowed
        return ReadWord(bytes_per_s=rate, left_s=None if deadline_s is None else deadline_s - now_s)

    def beat_over(self, counters: FlowCounters) -> None:
        """All ranks have entered the beat, so they follow the word of the one before."""
        with self._lock:
            self._followed, self._told = self._told, self._saying
            self._counters = counters
