"""A cell in shared memory that steers a writer in another process: what it may do, and who it does it for.

A trainer writes its cell, the process that writes the checkpoint reads it. A cell serves one save at a time and says
which; the deadline is CLOCK_BOOTTIME, alike in all processes of a machine.
"""

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rampmeter.core.errors import LeaseLost
from rampmeter.daemon.records import TwoRecords
from rampmeter.throttle import Throttle

_BODY = struct.Struct("<QQqdQQ32s")  # save, word, rate, until, pid, start, abort reason
_UNTHROTTLED = -1
_NO_END_S = float("inf")
_START_TIME_FIELD = 22
"""Of /proc/PID/stat: clock ticks from boot to the start of the process. A pid alone may be another process's by now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steering:
    """What a cell says.

    number         of the save; a writer of another one stops
    word           grows with each that is said of a save
    bytes_per_s    of this rank; None = unthrottled
    until_s        CLOCK_BOOTTIME in seconds; None = no end
    abort_reason   empty = go on
    trainer_pid, trainer_start   the process for which the save is made
    """

    number: int
    word: int = 0
    bytes_per_s: int | None = 0
    until_s: float | None = None
    abort_reason: str = ""
    trainer_pid: int
    trainer_start: int

    @classmethod
    def of_this_process(cls, number: int) -> Self:
        """A new save of the calling process: no rate yet."""
        return cls(number=number, trainer_pid=os.getpid(), trainer_start=start_of(os.getpid()) or 0)

    @property
    def trainer_lives(self) -> bool:
        """Whether the process for which the save is made still runs."""
        return start_of(self.trainer_pid) == self.trainer_start


class Cell:
    """Over the memory behind a descriptor, which trainer and writer share; both keep it mapped until `close`."""

    def __init__(self, descriptor: int) -> None:
        self._records = TwoRecords(descriptor, _BODY)

    def write(self, steering: Steering) -> None:
        """Say this from now on. One thread of one process writes."""
        self._records.write(
            steering.number,
            steering.word,
            _UNTHROTTLED if steering.bytes_per_s is None else steering.bytes_per_s,
            _NO_END_S if steering.until_s is None else steering.until_s,
            steering.trainer_pid,
            steering.trainer_start,
            steering.abort_reason.encode(),
        )

    def read(self) -> Steering | None:
        """The newest whole record; None before the first, or when a very fast writer has both in hand."""
        record = self._records.read()
        if record is None:
            return None
        number, word, rate, until_s, pid, start, reason = record
        return Steering(
            number=number,
            word=word,
            bytes_per_s=None if rate == _UNTHROTTLED else rate,
            until_s=None if until_s == _NO_END_S else until_s,
            abort_reason=reason.rstrip(b"\0").decode(),
            trainer_pid=pid,
            trainer_start=start,
        )

    def close(self) -> None:
        """Unmap it."""
        self._records.close()


class CellReader:
    """The writer's side: carries what the cell says to the throttle of the save `number`."""

    def __init__(self, cell: Cell, number: int, throttle: Throttle) -> None:
        self._cell = cell
        self._number = number
        self._throttle = throttle
        self._last: Steering | None = None

    @property
    def followed(self) -> int:
        """The newest word that the throttle follows."""
        return 0 if self._last is None else self._last.word

    def look(self, now_s: float) -> None:
        """Follow the cell; to be called each 20 ms.

        Raises LeaseLost when there is nothing more to write for: the save was aborted, the cell serves another one,
        or the trainer is gone and the lease has lapsed. Until then an orphan may finish what it began.
        """
        steering = self._cell.read()
        if steering is None or steering == self._last:
            self._stop_if_orphaned(now_s)
            return
        self._last = steering
        if steering.number != self._number:
            self._stop("superseded")
        if steering.abort_reason:
            self._stop(steering.abort_reason)
        self._throttle.set_rate(steering.bytes_per_s, steering.until_s)
        self._stop_if_orphaned(now_s)

    def _stop_if_orphaned(self, now_s: float) -> None:
        last = self._last
        if last is None or last.trainer_lives:
            return
        has_rate = last.bytes_per_s is None or last.bytes_per_s > 0
        if not has_rate or (last.until_s is not None and now_s >= last.until_s):
            self._stop("lease_lost")

    def _stop(self, reason: str) -> None:
        self._throttle.abort(reason)
        raise LeaseLost(reason)


def start_of(pid: int) -> int | None:
    """When the process was started, in clock ticks after the boot; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    after_name = stat.rpartition(")")[2].split()  # a name may hold anything; the third field follows it
    if after_name[0] in ("Z", "X"):
        return None
    return int(after_name[_START_TIME_FIELD - 3])
