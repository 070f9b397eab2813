"""When one of a job's checkpoints is read back from storage: every so often, and sooner where many were made. Pure.

A commit is verified as it is written; only reading it back past all caches shows that storage has kept it. Decides
neither which one nor what becomes of it.
"""

import math
from enum import StrEnum

from rampmeter.core.errors import ConfigError

DEFAULT_EVERY_S = 3600.0
EVERY_COMMITS = 10


class Outcome(StrEnum):
    """How reading one back has ended. `vanished`: it was removed meanwhile; `unreadable`: nothing is known."""

    WHOLE = "whole"
    DAMAGED = "damaged"
    VANISHED = "vanished"
    UNREADABLE = "unreadable"
    NOTHING_NEW = "nothing_new"


class Proving:
    """One per attempt. `every_s` None = never; ConfigError if it is out of range."""

    def __init__(self, every_s: float | None, *, now_s: float) -> None:
        is_number = type(every_s) in (int, float)
        if every_s is not None and not (is_number and 0.0 < every_s < math.inf):
            raise ConfigError("verify_every_s must be a positive number of seconds, or None for never")
        self._every_s = every_s
        self._ended_s = now_s
        self._num_commits = 0
        self._at_once = False

    @property
    def is_on(self) -> bool:
        """Whether anything is ever read back."""
        return self._every_s is not None

    def committed(self) -> None:
        """There is one more checkpoint."""
        self._num_commits += 1

    def begun(self) -> None:
        """One is read back now, the newest: what is committed from here on is news again."""
        self._num_commits, self._at_once = 0, False

    def ended(self, outcome: Outcome, now_s: float) -> None:
        """One was read back, or was to be.

        After a damaged one the one before has its turn at once, for until then nobody knows what can be relied on; and
        after one that was removed meanwhile, the newest. What could not be read has its turn next time.
        """
        self._ended_s = now_s
        self._at_once = outcome in (Outcome.DAMAGED, Outcome.VANISHED)
        if outcome is Outcome.UNREADABLE:
            self._num_commits = max(1, self._num_commits)

    def due_in_s(self, now_s: float) -> float:
        """Seconds until one is to be read back; infinity where nothing is coming by itself."""
        if self._every_s is None:
            return math.inf
        if self._at_once or self._num_commits >= EVERY_COMMITS:
            return 0.0
        return max(0.0, self._ended_s + self._every_s - now_s) if self._num_commits else math.inf
