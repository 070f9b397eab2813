"""Holds whoever verifies a checkpoint to its read lease: each block is paid for once, before it is read.

The verification reads every byte from storage; what is read of a block later, to verify it for another part of the
state or to load it, comes from the page cache and is not paid for again. What the cache could not keep is read again
and not paced, and what the file system reads ahead comes on top, at most one of its windows per reading thread.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from rampmeter.ranks.rider import Rider
from rampmeter.throttle import Throttle


class ByteSource(Protocol):
    """A file that is open for reading without a buffer of its own."""

    def readinto(self, buffer: memoryview, /) -> int | None: ...


Read = Callable[[ByteSource, memoryview], int]
"""Reads as many bytes as it likes into the buffer; 0 at the end of the file, or for an empty buffer."""


class Pace(Protocol):
    """How fast a checkpoint may be read."""

    def reader(self, name: str, block: int) -> Read:
        """What to read this block of this file with."""
        ...

    def guarded(self) -> AbstractContextManager[None]:
        """Ends all reading when what is inside raises: threads that wait for their turn must not be waited for."""
        ...

    def among(self, loads_bytes: Sequence[int]) -> AbstractContextManager[Rider | None]:
        """Around the verification of these bytes by the ranks, each its own; what goes along with their beats."""
        ...


class Unpaced:
    """As fast as it goes."""

    def reader(self, name: str, block: int) -> Read:  # noqa: ARG002 - all are alike
        return _read

    def guarded(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def among(self, loads_bytes: Sequence[int]) -> AbstractContextManager[None]:  # noqa: ARG002 - all are alike
        return contextlib.nullcontext()


UNPACED = Unpaced()


class LeasedPace:
    """The pace of one restore. `on_all_read` is called once, from a reading thread, when `num_bytes` were read."""

    def __init__(self, throttle: Throttle, num_bytes: int, on_all_read: Callable[[], None]) -> None:
        self._throttle = throttle
        self._num_bytes = num_bytes
        self._on_all_read = on_all_read
        self._lock = threading.Lock()
        self._left_bytes = num_bytes
        self._seen: set[tuple[str, int]] = set()

    def reader(self, name: str, block: int) -> Read:
        with self._lock:
            is_new = (name, block) not in self._seen
            self._seen.add((name, block))
        return self._paid_read if is_new else _read

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._throttle.abort("interrupted")
            raise

    def among(self, loads_bytes: Sequence[int]) -> AbstractContextManager[None]:  # noqa: ARG002 - it is alone
        return contextlib.nullcontext()

    def _paid_read(self, stream: ByteSource, buffer: memoryview) -> int:
        piece = buffer[: self._throttle.chunk_bytes()]
        self._throttle.take(len(piece))
        with self._throttle.blocked():
            count = _read(stream, piece)
        self._throttle.add_done(count)
        self._note_read(count)
        return count

    def _note_read(self, num_bytes: int) -> None:
        with self._lock:
            before_bytes, self._left_bytes = self._left_bytes, self._left_bytes - num_bytes
            is_last = before_bytes > 0 >= self._left_bytes
        if is_last:
            self._on_all_read()


def _read(stream: ByteSource, buffer: memoryview) -> int:
    return stream.readinto(buffer) or 0
