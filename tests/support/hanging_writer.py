"""Storage that hangs in the middle of a shard: a write that the kernel never lets return, as on a mount without server.

The shard is a FIFO that nobody reads. `HUNG` is set once its buffer is full.
"""

import contextlib
import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter

HUNG = threading.Event()


class _Pipe(io.RawIOBase):
    """The last write before the hang says so."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        HUNG.set()
        return os.write(self._descriptor, bytes(data) + bytes(1 << 20))  # more than a FIFO holds


class _FileSystem(FileSystem):
    @contextlib.contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
        if not str(path).endswith(".distcp"):
            with super().create_stream(path, mode) as stream:
                yield stream
            return
        os.mkfifo(path)
        yield _Pipe(os.open(path, os.O_RDWR))


class HangingWriter(FileSystemWriter):
    """Never comes to an end."""

    def __init__(self, path: str | Path, **options: Any) -> None:
        super().__init__(path, **options)
        self.fs = _FileSystem()
