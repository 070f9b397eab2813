"""A thread of its own that reads the job's checkpoints back, one at a time, while training goes on.

What is whole is marked as proven; what is damaged loses that mark and is told of, at once and by name. Nothing raises
out of here, and nobody waits for it: storage that hangs keeps this thread, and no other.
"""

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from rampmeter.core.clock import Clock
from rampmeter.core.errors import CorruptCheckpoint, LeaseLost
from rampmeter.core.proving import Outcome, Proving
from rampmeter.events import Event, ReadBack
from rampmeter.layout import Root, StepName
from rampmeter.marks import note_damaged, note_read_back
from rampmeter.reading.pace import LeasedPace
from rampmeter.rereading.choosing import choose, manifest_of, outcome_of, read_back
from rampmeter.throttle import Throttle

_log = logging.getLogger("rampmeter")

_CLOSED = "closing"
_LONGEST_NAP_S = 3600.0
_END_LIMIT_S = 0.2
"""For the piece that is just being read; storage that hangs keeps nobody longer."""


class RereadDesk(Protocol):
    """Where it is said that something is read back."""

    def begin_reread(self, num_bytes: int) -> Throttle: ...

    def end_reread(self) -> None: ...

    def found_damaged(self) -> None: ...

    def reread_no_more(self, reason: str) -> None: ...


class Rereader:
    """From `start` to `stop`, in the process that speaks for the job. `is_fenced` looks into the root."""

    def __init__(
        self,
        root: Root,
        desk: RereadDesk,
        proving: Proving,
        *,
        clock: Clock,
        is_fenced: Callable[[], bool],
        tell: Callable[[Event], None],
    ) -> None:
        self._root = root
        self._desk = desk
        self._proving = proving
        self._clock = clock
        self._is_fenced = is_fenced
        self._tell = tell
        self._damaged: set[StepName] = set()
        self._older_than: StepName | None = None
        self._reading: StepName | None = None
        self._last_trouble = ""
        self._stopped = False
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rampmeter-reread", daemon=True)

    def start(self) -> None:
        """Begin, if anything is ever to be read back."""
        if self._proving.is_on:
            self._thread.start()

    def reading(self) -> StepName | None:
        """Which checkpoint is being read back: removed now, it would never be proven."""
        return self._reading

    def committed(self) -> None:
        """There is one more checkpoint."""
        with self._lock:
            self._proving.committed()
        self._wake.set()

    def stop(self) -> None:
        """Read nothing more, and mark nothing."""
        self._stopped = True
        self._desk.reread_no_more(_CLOSED)
        self._wake.set()

    def join(self) -> None:
        """After `stop`: a moment for the piece that is just being read."""
        if self._thread.is_alive():
            self._thread.join(_END_LIMIT_S)

    # -- the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopped:
            self._wake.wait(min(self._proving.due_in_s(self._clock.now()), _LONGEST_NAP_S))
            self._wake.clear()
            if self._stopped or self._proving.due_in_s(self._clock.now()) > 0.0:
                continue
            with self._lock:
                self._proving.begun()
            try:
                outcome = self._round()
            except LeaseLost:
                return  # the attempt is over
            except Exception as error:
                self._note_trouble(error)
                outcome = Outcome.UNREADABLE
            with self._lock:
                self._proving.ended(outcome, self._clock.now())

    def _round(self) -> Outcome:
        if self._is_fenced():
            raise LeaseLost("superseded")
        older_than, self._older_than = self._older_than, None
        name = choose(self._root, self._damaged, older_than=older_than)
        if name is None:
            if older_than is not None:
                _log.error("there is no checkpoint before step %d", older_than.step)
            return Outcome.NOTHING_NEW
        self._reading = name
        try:
            return self._prove(name)
        finally:
            self._reading = None  # not before it is marked: a proven one stays for that

    def _prove(self, name: StepName) -> Outcome:
        try:
            self._read_back(name)
        except LeaseLost:
            raise
        except Exception as error:
            return self._note_error(name, error)
        self._note_whole(name)
        return Outcome.WHOLE

    def _read_back(self, name: StepName) -> None:
        manifest = manifest_of(self._root, name)
        num_bytes = manifest.total_bytes
        try:
            pace = LeasedPace(self._desk.begin_reread(num_bytes), num_bytes, self._desk.end_reread)
            read_back(self._root, name, manifest, pace)
        finally:
            self._desk.end_reread()

    def _note_whole(self, name: StepName) -> None:
        self._last_trouble = ""
        if self._stopped:
            return
        note_read_back(self._root.directory(name))
        _log.info("step %d was read back from storage: it is whole", name.step)
        self._say(name, None)

    def _note_error(self, name: StepName, error: Exception) -> Outcome:
        outcome = outcome_of(self._root, name, error)
        if outcome is Outcome.DAMAGED:
            self._note_damaged(name, error)
        elif outcome is Outcome.UNREADABLE:
            self._note_trouble(error)
        else:
            _log.info("step %d was removed while it was read back; the newest is next", name.step)
        return outcome

    def _note_damaged(self, name: StepName, error: Exception) -> None:
        damage = str(error)
        self._damaged.add(name)
        self._older_than = name
        if self._stopped:
            return
        found = error if isinstance(error, CorruptCheckpoint) else CorruptCheckpoint(damage)
        note_damaged(self._root.directory(name), found)
        self._desk.found_damaged()
        _log.error(
            "the checkpoint of step %d (%s) is damaged: %s; restores pass it over, and the one before is read back now",
            name.step,
            name,
            damage,
        )
        self._say(name, damage)

    def _note_trouble(self, error: Exception) -> None:
        """Once for the same: it is tried again every time."""
        trouble = f"{type(error).__name__}: {error}"
        if trouble != self._last_trouble:
            self._last_trouble = trouble
            _log.warning("no checkpoint could be read back, trying again later: %s", trouble)

    def _say(self, name: StepName, damage: str | None) -> None:
        self._tell(ReadBack(now_s=self._clock.now(), step=name.step, directory=str(name), damage=damage))
