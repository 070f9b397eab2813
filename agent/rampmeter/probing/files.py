"""The file operations of a probe, one method each, so that tests can have any of them fail. Decides nothing."""

import os
from dataclasses import dataclass
from pathlib import Path

from rampmeter.pushout import push_out


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """What a file system has left for this user. None = it does not say (some network file systems report 0 of 0)."""

    free_bytes: int | None
    free_files: int | None


class Files:
    """The real file system. Every method may raise OSError."""

    def space(self, directory: Path) -> Space:
        found = os.statvfs(directory)
        return Space(
            free_bytes=found.f_bavail * found.f_frsize if found.f_blocks else None,
            free_files=found.f_favail if found.f_files else None,
        )

    def make_directory(self, path: Path) -> None:
        path.mkdir(mode=0o700)

    def create(self, path: Path) -> int:
        """A descriptor of a new file; never of one that is there already."""
        return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)

    def open(self, path: Path) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def write(self, descriptor: int, data: memoryview) -> int:
        return os.write(descriptor, data)

    def push_out(self, descriptor: int, end_bytes: int) -> None:
        """As the agent's writer does it after each window."""
        push_out(descriptor, end_bytes)

    def sync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def forget(self, descriptor: int) -> None:
        """Drop what this host has cached of the file, where that is possible."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def read(self, descriptor: int, buffer: bytearray) -> int:
        return os.readv(descriptor, [buffer])

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_directory(self, path: Path) -> None:
        path.rmdir()
