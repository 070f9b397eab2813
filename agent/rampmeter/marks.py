"""Small files in a checkpoint's directory that say something about it: that it must stay, that it was read back whole.

A mark is not part of the checkpoint: no manifest lists it and no restore looks at it. What follows from a mark is
decided in `retention`; how a pin and a deletion that meet find out about each other, in `removal`.
"""

import contextlib
import errno
import json
from enum import StrEnum
from pathlib import Path

from rampmeter.core.clock import wall_time
from rampmeter.files import create_once, exists, sync_directory


class Mark(StrEnum):
    """The name of the file is the mark."""

    PINNED = "PINNED"
    PROVEN = "PROVEN"


def put_mark(directory: Path, mark: Mark) -> None:
    """Durable; a mark that is there stays as it is. OSError if the directory is gone or not ours to write."""
    _refuse_link(directory)
    create_once(directory / mark, json.dumps({"marked_at": wall_time()}).encode())


def take_mark(directory: Path, mark: Mark) -> bool:
    """Whether there was one. OSError if it cannot be taken away."""
    _refuse_link(directory)
    try:
        (directory / mark).unlink()
    except FileNotFoundError:
        return False
    sync_directory(directory)
    return True


def _refuse_link(directory: Path) -> None:
    """What is linked to stands elsewhere, and is its owner's to write."""
    if directory.is_symlink():
        raise OSError(errno.ELOOP, "is a symbolic link, which is not followed for writing", str(directory))


def has_mark(directory: Path, mark: Mark) -> bool:
    """PermissionError if that cannot be seen."""
    return exists(directory / mark)


def note_proven(directory: Path, *, whole: bool) -> None:
    """Remember what reading it back has shown: proven, or proven no longer. A root that is only to be read does not."""
    with contextlib.suppress(OSError):
        if whole:
            put_mark(directory, Mark.PROVEN)
        else:
            take_mark(directory, Mark.PROVEN)
