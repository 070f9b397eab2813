"""Where training is, and how fast: beside flushes and between them. Decides nothing.

Training calls `see` at every step: an assignment and a look at one flag. The clock is read at every step only while a
flush runs; between flushes at the next step after somebody asked, which the keeper's thread does every few seconds.
Times are taken at ends of steps, so that no step is counted in part, and the stall of a snapshot is in none of them.
"""

import threading
from collections import deque
from dataclasses import dataclass

from rampmeter.core.clock import Clock
from rampmeter.slowdown import ENOUGH_STEPS, SlowDown, Stretch

_ASK_EVERY_S = 5.0
_PIECE_S = 0.1
"""The shortest piece of a flush: short steps are timed together, for a hold-up of milliseconds is no stall."""

_NUM_PIECES = 512


@dataclass(frozen=True, slots=True)
class _Mark:
    step: int
    at_s: float


class StepWatch:
    """One per attempt. `see`, `snapshot_begins` and `flush_begins` are called by the training thread alone.

    The lock is held for arithmetic only; nothing else is locked inside it.
    """

    def __init__(self, clock: Clock) -> None:
        self.step = 0
        self.first_step_s: float | None = None
        """When the first step of this attempt was done."""
        self._clock = clock
        self._lock = threading.Lock()
        self._slow_down = SlowDown()
        self._is_timed = True
        self._since: _Mark | None = None  # where the stretch or piece that is being timed began
        self._newest: _Mark | None = None  # the last step that was timed beside this flush
        self._flush_since_s: float | None = None
        self._pieces: deque[Stretch] = deque(maxlen=_NUM_PIECES)
        self._asked_s = float("-inf")

    def see(self, step: int) -> None:
        """Training has done `step`. Called at every step."""
        self.step = step
        if self._is_timed:
            self._time()

    def ask(self, now_s: float) -> None:
        """Time passes: have the next step timed, now and then."""
        with self._lock:
            if now_s >= self._asked_s + _ASK_EVERY_S:
                self._asked_s = now_s
                self._is_timed = True

    def snapshot_begins(self) -> None:
        """Training stands still for a snapshot, after a step that was seen."""
        with self._lock:
            self._end_stretch(self._here())

    def flush_begins(self) -> None:
        """The snapshot is taken, training goes on, and its flush begins."""
        with self._lock:
            here = self._since = self._newest = self._here()
            self._pieces.clear()
            self._flush_since_s = here.at_s
            self._is_timed = True

    def flush_ended(self, *, committed: bool, at_work_s: float) -> float | None:
        """eps as SlowDown has it, if this flush was committed and says anything."""
        with self._lock:
            since_s, self._flush_since_s = self._flush_since_s, None
            if self._newest is not None:
                self._end_piece(self._newest)
            self._since = self._newest = None
            self._is_timed = True
            if since_s is None or not committed:
                return None
            flush_s = self._clock.now() - since_s
            return self._slow_down.note_flush(tuple(self._pieces), flush_s=flush_s, at_work_s=at_work_s)

    def _time(self) -> None:
        with self._lock:
            here = self._here()
            if self.first_step_s is None:
                self.first_step_s = here.at_s
            if self._flush_since_s is None:
                self._end_stretch(here)
                self._is_timed = False
                return
            self._newest = here
            if self._since is None or here.at_s >= self._since.at_s + _PIECE_S:
                self._end_piece(here)

    def _here(self) -> _Mark:
        return _Mark(self.step, self._clock.now())

    def _end_stretch(self, here: _Mark) -> None:
        """One with too few steps goes on; one that goes back, as after a restore, begins anew."""
        stretch = _between(self._since, here)
        if stretch is not None and 0 <= stretch.num_steps < ENOUGH_STEPS:
            return
        if stretch is not None and stretch.num_steps > 0 and stretch.duration_s > 0.0:
            self._slow_down.note_between(stretch)
        self._since = here

    def _end_piece(self, here: _Mark) -> None:
        piece = _between(self._since, here)
        if piece is not None and piece.num_steps > 0 and piece.duration_s > 0.0:
            self._pieces.append(piece)
        self._since = here


def _between(since: _Mark | None, here: _Mark) -> Stretch | None:
    if since is None:
        return None
    return Stretch(num_steps=here.step - since.step, duration_s=here.at_s - since.at_s)
