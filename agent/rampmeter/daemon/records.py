"""One value that a process says and another reads, in memory that both have mapped. No lock: either may be killed.

Two records take turns and carry a sum over themselves, so that a reader never takes half a record for one. The memory
has no name in any directory: it is gone with the last process that has it open, however that ended.
"""

import mmap
import os
import struct
import zlib
from typing import Any

_HEAD = struct.Struct("<Q")  # sequence
_SUM = struct.Struct("<I")


def new_memory() -> int:
    """A descriptor of memory to share: for a child to inherit, or to be sent over a socket."""
    return os.memfd_create("rampmeter", os.MFD_CLOEXEC)


class TwoRecords:
    """The memory behind `descriptor`, which the caller may close; `body` is the layout of the value (little-endian)."""

    def __init__(self, descriptor: int, body: struct.Struct) -> None:
        self._body = body
        self._record_bytes = _HEAD.size + body.size + _SUM.size
        num_bytes = 2 * self._record_bytes
        if os.fstat(descriptor).st_size < num_bytes:
            os.ftruncate(descriptor, num_bytes)
        self._memory = mmap.mmap(descriptor, num_bytes)
        self._sequence = 0

    def write(self, *values: Any) -> None:
        """Say this from now on. One process writes, one thread at a time."""
        self._sequence += 1
        content = _HEAD.pack(self._sequence) + self._body.pack(*values)
        place = (self._sequence % 2) * self._record_bytes
        self._memory[place : place + self._record_bytes] = content + _SUM.pack(zlib.crc32(content))

    def read(self) -> tuple[Any, ...] | None:
        """The newest whole record; None before the first, or when a very fast writer has both in hand."""
        whole = [record for record in (self._record(0), self._record(1)) if record is not None]
        return max(whole, key=lambda record: record[0])[1] if whole else None

    def _record(self, turn: int) -> tuple[int, tuple[Any, ...]] | None:
        content = self._memory[turn * self._record_bytes : (turn + 1) * self._record_bytes]
        said, found = content[: -_SUM.size], content[-_SUM.size :]
        (sequence,) = _HEAD.unpack_from(said)
        if sequence == 0 or _SUM.pack(zlib.crc32(said)) != found:
            return None
        return sequence, self._body.unpack_from(said, _HEAD.size)

    def close(self) -> None:
        """Unmap it."""
        self._memory.close()
