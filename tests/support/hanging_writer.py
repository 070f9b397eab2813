"""Storage that hangs: a call that the kernel never lets return, as on a mount without server.

All hang at a FIFO that nobody reads or writes: to write more than its buffer holds, or to open it. `HUNG` is set, and
`hangs_under` says so in other processes, just before.
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


def hangs_under(root: Path) -> bool:
    """Whether a writer has begun to hang in a checkpoint of this root, of whatever process."""
    return any(root.glob("hangs-*"))


def _hang_in_open(path: Any) -> None:
    fifo = Path(path).parent.parent / f"hangs-{os.getpid()}"
    os.mkfifo(fifo)
    HUNG.set()
    os.open(fifo, os.O_WRONLY)


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


class _HangsInMkdir(FileSystem):
    def mkdir(self, path: Any) -> None:
        super().mkdir(path)
        _hang_in_open(Path(path) / "any")


class _HangsInCall(FileSystem):
    """At the file whose name ends so: when it is opened, or when it is closed and all is in it."""

    def __init__(self, suffix: str, *, at_close: bool = False) -> None:
        super().__init__()
        self._suffix = suffix
        self._at_close = at_close

    @contextlib.contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
        if str(path).endswith(self._suffix) and not self._at_close:
            _hang_in_open(path)
        with super().create_stream(path, mode) as stream:
            yield stream
        if str(path).endswith(self._suffix):
            _hang_in_open(path)


class HangsInMkdir(FileSystemWriter):
    """Before its first byte, when its directory is made."""

    def __init__(self, path: str | Path, **options: Any) -> None:
        super().__init__(path, **options)
        self.fs = _HangsInMkdir()


class HangsInOpen(FileSystemWriter):
    """Before its first byte, when the shard is opened."""

    def __init__(self, path: str | Path, **options: Any) -> None:
        super().__init__(path, **options)
        self.fs = _HangsInCall(".distcp")


class HangsInClose(FileSystemWriter):
    """After its last byte, when the shard is closed."""

    def __init__(self, path: str | Path, **options: Any) -> None:
        super().__init__(path, **options)
        self.fs = _HangsInCall(".distcp", at_close=True)


class HangsInMetadata(FileSystemWriter):
    """After its last byte, when the metadata is opened."""

    def __init__(self, path: str | Path, **options: Any) -> None:
        super().__init__(path, **options)
        self.fs = _HangsInCall(".metadata.tmp")
