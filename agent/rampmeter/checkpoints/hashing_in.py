"""Reads the files of a foreign checkpoint once, as durable bytes, and refuses one that is not finished.

It decides nothing about where the checkpoint goes, and writes nothing.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path

from rampmeter.checkpoints.foreign import ForeignCheckpoint, ForeignFile
from rampmeter.core.errors import CorruptCheckpoint
from rampmeter.hashing import FileHasher, HashedFile

_READ_BYTES = 1024 * 1024

Look = tuple[int, int, int]


def check_files(directory: Path, foreign: ForeignCheckpoint) -> int:
    """Bytes of all files; CorruptCheckpoint if one is missing, short or no plain file."""
    return sum(_look(directory, file)[1] for file in foreign.files)


def hash_files(
    directory: Path, foreign: ForeignCheckpoint, on_read: Callable[[str, int], object]
) -> list[HashedFile]:
    """The digests of all files, in their order; CorruptCheckpoint if somebody writes into one meanwhile."""
    before = [_look(directory, file) for file in foreign.files]
    hashed = [_hash(directory / file.name, on_read) for file in foreign.files]
    for file, seen in zip(foreign.files, before, strict=True):
        if _look(directory, file) != seen:
            raise CorruptCheckpoint(
                f"{directory / file.name} has changed while it was read: wait until it is written"
            )
    return hashed


def _look(directory: Path, file: ForeignFile) -> Look:
    """What changes when somebody writes into a file: inode, size, time of the last change in ns."""
    path = directory / file.name
    try:
        found = path.lstat()
    except FileNotFoundError:
        raise CorruptCheckpoint(f"{directory} is half written: file {file.name} is missing") from None
    if not stat.S_ISREG(found.st_mode):
        raise CorruptCheckpoint(f"{path} is no plain file: a checkpoint must hold its own bytes")
    if found.st_size < file.least_bytes:
        raise CorruptCheckpoint(
            f"{directory} is half written: file {file.name} has {found.st_size} bytes and needs {file.least_bytes}"
        )
    return found.st_ino, found.st_size, found.st_mtime_ns


def _hash(path: Path, on_read: Callable[[str, int], object]) -> HashedFile:
    hasher = FileHasher()
    buffer = memoryview(bytearray(_READ_BYTES))
    with path.open("rb", buffering=0) as stream:
        os.fsync(stream.fileno())  # its writer may not have
        while num_bytes := stream.readinto(buffer):
            hasher.update(buffer[:num_bytes])
            on_read(path.name, num_bytes)
    return hasher.finish(path.name)
