"""What people are told of the ranks' common log: once, and by rank 0 alone, whatever the number of ranks.

A rank that was already past the proposed call is no trouble by itself: the next proposal takes it into account.
"""

import logging

from rampmeter.ranks.words import Event, EventKind

_log = logging.getLogger("rampmeter")

_ABORTED_ONCE = 1


class Teller:
    """One per rank; silent on all but rank 0."""

    def __init__(self, rank: int) -> None:
        self._is_heard = rank == 0
        self._num_aborted = 0
        self._has_told = self._has_told_lag = False

    def lags(self, trouble: str) -> None:
        """A rank calls `step()` too seldom; empty = none does. Told once in a job."""
        if trouble and not self._has_told_lag:
            self._has_told_lag = True
            _log.warning("%s", trouble)

    def heard(self, event: Event) -> None:
        """Read an event, in the order of the log."""
        if event.kind is EventKind.COMMITTED:
            self._num_aborted, self._has_told = 0, False
        elif event.kind is EventKind.ABORTED:
            self._num_aborted += 1
            if self._num_aborted > _ABORTED_ONCE:
                self._tell(f"the ranks did not agree on a call of step(), and try again: {event.detail}")
        elif event.kind is EventKind.FAILED:
            self._tell(f"a save fails on all ranks, because of rank {event.rank}: {event.detail}")

    def _tell(self, trouble: str) -> None:
        """Several ranks may say the same, and rank 0 goes on trying."""
        if self._is_heard and not self._has_told:
            self._has_told = True
            _log.warning("%s", trouble)
