"""A cell in shared memory that steers a writer in another process: what it may do, and who it does it for.

A trainer writes its cell, the process that writes the checkpoint reads it. Two records take turns and carry a sum over
themselves, so that a reader never takes half a record for one, also if the trainer was killed while it wrote. A cell
serves one save at a time and says which; the deadline is CLOCK_BOOTTIME, alike in all processes of a machine.
"""

import mmap
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rampmeter.core.errors import LeaseLost
from rampmeter.throttle import Throttle

_RECORD = struct.Struct("<QQqdQQ32sI")  # sequence, save, rate, until, pid, start, abort reason, sum
_SUM_BYTES = 4
_CELL_BYTES = 2 * _RECORD.size
_UNTHROTTLED = -1
_NO_END_S = float("inf")
_START_TIME_FIELD = 22
"""Of /proc/PID/stat: clock ticks from boot to the start of the process. A pid alone may be another process's by now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steering:
    """What a cell says.

    number         of the save; a writer of another one stops
    bytes_per_s    of this rank; None = unthrottled
    until_s        CLOCK_BOOTTIME in seconds; None = no end
    abort_reason   empty = go on
    trainer_pid, trainer_start   the process for which the save is made
    """

    number: int
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
    """Made by the trainer, opened by the writer; both keep it mapped until `close`."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0)
        descriptor = os.open(path, flags, 0o600)
        try:
            if create:
                os.ftruncate(descriptor, _CELL_BYTES)
            self._memory = mmap.mmap(descriptor, _CELL_BYTES)
        finally:
            os.close(descriptor)
        self._sequence = 0

    def write(self, steering: Steering) -> None:
        """Say this from now on. One thread of one process writes."""
        self._sequence += 1
        rate = _UNTHROTTLED if steering.bytes_per_s is None else steering.bytes_per_s
        until_s = _NO_END_S if steering.until_s is None else steering.until_s
        reason = steering.abort_reason.encode()[:32]
        head = (self._sequence, steering.number, rate, until_s, steering.trainer_pid, steering.trainer_start)
        body = _RECORD.pack(*head, reason, 0)[:-_SUM_BYTES]
        place = (self._sequence % 2) * _RECORD.size
        self._memory[place : place + _RECORD.size] = body + struct.pack("<I", zlib.crc32(body))

    def read(self) -> Steering | None:
        """The newest whole record; None before the first, or while a fast writer has both in hand."""
        records = [self._record(place) for place in (0, _RECORD.size)]
        whole = [record for record in records if record is not None]
        return max(whole, key=lambda record: record[0])[1] if whole else None

    def _record(self, place: int) -> tuple[int, Steering] | None:
        content = self._memory[place : place + _RECORD.size]
        sequence, number, rate, until_s, pid, start, reason, check = _RECORD.unpack(content)
        if sequence == 0 or zlib.crc32(content[:-_SUM_BYTES]) != check:
            return None
        return sequence, Steering(
            number=number,
            bytes_per_s=None if rate == _UNTHROTTLED else rate,
            until_s=None if until_s == _NO_END_S else until_s,
            abort_reason=reason.rstrip(b"\0").decode(),
            trainer_pid=pid,
            trainer_start=start,
        )

    def close(self) -> None:
        """Unmap it."""
        self._memory.close()


class CellReader:
    """The writer's side: carries what the cell says to the throttle of the save `number`."""

    def __init__(self, cell: Cell, number: int, throttle: Throttle) -> None:
        self._cell = cell
        self._number = number
        self._throttle = throttle
        self._last: Steering | None = None

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
