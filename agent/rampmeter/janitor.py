"""Retention in a thread of its own: a deletion takes as long as it takes, and neither training nor a save waits for it.

One deletion at a time, at most 200 files a second. What a stop cuts off is finished by the next one. Nothing raises
out of here, and an attempt that was superseded removes nothing more: what stays is the newer one's decision.
"""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from rampmeter.layout import Root, StepName
from rampmeter.removal import PAUSE_S
from rampmeter.retention import Keep, prune, sweep, write_keep
from rampmeter.temporaries import sweep_temporaries

_log = logging.getLogger("rampmeter")


_END_LIMIT_S = 1.0
"""For the file that is just being removed; a file system that hangs keeps nobody longer."""


class _Stopping(Exception):
    """The process wants to end, in the middle of a deletion."""


class Janitor:
    """Sweeps at the start and prunes after each commit.

    `is_fenced`: whether a newer attempt has taken over; `reading`: which checkpoint is being read back.
    """

    def __init__(
        self,
        root: Root,
        keep: Keep,
        *,
        attempt: int,
        is_fenced: Callable[[], bool],
        reading: Callable[[], StepName | None],
    ) -> None:
        self._root = root
        self._keep = keep
        self._attempt = attempt
        self._is_fenced = is_fenced
        self._reading = reading
        self._days: dict[StepName, str] = {}
        self._temporaries: set[Path] = set()
        self._stop = threading.Event()
        self._wanted = threading.Condition()
        self._num_wanted = 1  # what earlier attempts left behind
        self._num_done = 0
        self._thread = threading.Thread(target=self._run, name="rampmeter-janitor", daemon=True)

    def start(self) -> None:
        """Record what this job keeps; then begin with what earlier attempts left behind."""
        self._record()
        self._thread.start()

    def poke(self) -> None:
        """A checkpoint was committed."""
        with self._wanted:
            self._num_wanted += 1
            self._wanted.notify_all()

    def wait(self, limit_s: float) -> bool:
        """Whether all that was asked for so far was done within `limit_s`."""
        with self._wanted:
            asked = self._num_wanted
            return self._wanted.wait_for(lambda: self._num_done >= asked, limit_s)

    def close(self, limit_s: float) -> None:
        """Wait up to `limit_s` for the deletions that are due, then stop between two files."""
        self.wait(limit_s)
        self._stop.set()
        self.poke()
        self._thread.join(_END_LIMIT_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            with self._wanted:
                self._wanted.wait_for(lambda: self._num_wanted > self._num_done)
                wanted = self._num_wanted
            try:
                self._round()
            except _Stopping:
                return
            except OSError as error:
                _log.warning("old checkpoints were not removed: %s", error)
            except Exception:
                _log.exception("old checkpoints were not removed: unexpected error beside training")
            with self._wanted:
                self._num_done = wanted
                self._wanted.notify_all()

    def _round(self) -> None:
        if self._stop.is_set() or self._is_fenced():
            return
        sweep(self._root, self._attempt, self._breathe)
        sweep_temporaries(self._root, self._temporaries, self._breathe)
        prune(self._root, self._keep, self._breathe, days=self._days, reading=self._reading())

    def _record(self) -> None:
        try:
            write_keep(self._root, self._keep)
        except OSError as error:
            _log.warning("what this job keeps could not be recorded under the root: %s", error)

    def _breathe(self) -> None:
        if self._stop.wait(PAUSE_S):
            raise _Stopping
