"""torch's own file-system writer with one thing changed: its bytes pass the emulated shared storage.

Both acts write through this class, the herd directly and the metered act beneath the agent's pacing, so that the
difference between the acts is coordination and nothing else. Sleeping happens inside write(): it is storage time.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter

from rampmeter.core.clock import Clock, SystemClock
from rampmeter_coordinator.demo.storage import Lane, SharedStorage

OnChunk = Callable[[float, float, int], None]
"""Told of bytes that went into the storage: begin_s, end_s, num_bytes."""

_PIECE_BYTES = 1024 * 1024
_REPORT_EVERY_S = 0.1


class _ChunkLog:
    """Adds up pieces until they cover 0.1 s or a gap comes: one report for many small writes."""

    def __init__(self, on_chunk: OnChunk) -> None:
        self._on_chunk = on_chunk
        self._begin_s = self._end_s = 0.0
        self._num_bytes = 0

    def add(self, begin_s: float, end_s: float, num_bytes: int) -> None:
        if self._num_bytes and (begin_s - self._end_s > _REPORT_EVERY_S):
            self.report()
        if not self._num_bytes:
            self._begin_s = begin_s
        self._end_s = end_s
        self._num_bytes += num_bytes
        if end_s - self._begin_s >= _REPORT_EVERY_S:
            self.report()

    def report(self) -> None:
        if self._num_bytes:
            self._on_chunk(self._begin_s, self._end_s, self._num_bytes)
        self._num_bytes = 0


class EmulatedStream:
    """A binary stream whose writes take as long as the emulated storage says."""

    def __init__(self, inner: IO[bytes], lane: Lane, log: _ChunkLog, clock: Clock) -> None:
        self._inner = inner
        self._lane = lane
        self._log = log
        self._clock = clock

    def write(self, data: Any) -> int:
        """Write all of `data`."""
        view = memoryview(data).cast("B")
        for start in range(0, len(view), _PIECE_BYTES):
            piece = view[start : start + _PIECE_BYTES]
            begin_s = self._clock.now()
            self._lane.transfer(len(piece))
            self._inner.write(piece)
            self._log.add(begin_s, self._clock.now(), len(piece))
        return len(view)

    def __getattr__(self, name: str) -> Any:
        """All that is not about writing is the file's own."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._inner, name)


class EmulatedFileSystem(FileSystem):
    """A file system whose files are written into the emulated storage."""

    def __init__(self, storage: SharedStorage, on_chunk: OnChunk) -> None:
        self._storage = storage
        self._on_chunk = on_chunk
        self._clock = SystemClock()

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        """The file's stream; reading is not slowed down."""
        with super().create_stream(path, mode) as inner:
            if mode != "wb":
                yield inner
                return
            lane, log = self._storage.open_lane(), _ChunkLog(self._on_chunk)
            try:
                yield EmulatedStream(cast("IO[bytes]", inner), lane, log, self._clock)
            finally:
                log.report()
                lane.close()


class EmulatedStorageWriter(FileSystemWriter):
    """Use a subclass from `bound_to`."""

    storage: SharedStorage
    on_chunk: OnChunk

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        super().__init__(path, **options)
        self.fs = EmulatedFileSystem(self.storage, type(self).on_chunk)


def bound_to(storage: SharedStorage, on_chunk: OnChunk) -> type[EmulatedStorageWriter]:
    """A writer class for one process: it knows the storage and whom to tell of chunks."""
    return type(
        "BoundEmulatedStorageWriter",
        (EmulatedStorageWriter,),
        {"storage": storage, "on_chunk": staticmethod(on_chunk)},
    )
