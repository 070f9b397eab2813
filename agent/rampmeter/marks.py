"""Small files in a checkpoint's directory that say something about it: that it must stay, what reading it has shown.

A mark is not part of the checkpoint: no manifest lists it and no restore looks at it, which verifies what it reads
itself. What follows from a mark is decided in `retention`; how a pin and a deletion that meet find out about each
other, in `removal`. `DAMAGED` is for what only reading shows: what is missing or short everybody sees who looks. An
error of the storage is never a finding.
"""

import contextlib
import errno
import json
from enum import StrEnum
from pathlib import Path

from rampmeter.core.clock import wall_time
from rampmeter.core.errors import CorruptCheckpoint, DigestMismatch
from rampmeter.files import create_once, exists, read_small, sync_directory
from rampmeter.layout import MANIFEST_NAME


class Mark(StrEnum):
    """The name of the file is the mark."""

    PINNED = "PINNED"
    PROVEN = "PROVEN"
    DAMAGED = "DAMAGED"


def put_mark(directory: Path, mark: Mark, **more: str) -> None:
    """Durable; a mark that is there stays as it is. OSError if the directory is gone or not ours to write."""
    _refuse_link(directory)
    create_once(directory / mark, json.dumps({"marked_at": wall_time(), **more}).encode())


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
    """Remember what reading it has shown: proven, or proven no longer. A root that is only to be read does not.

    What was read may have come from this host's memory: that lifts no finding about storage.
    """
    with contextlib.suppress(OSError):
        if not whole:
            take_mark(directory, Mark.PROVEN)
        elif not has_mark(directory, Mark.DAMAGED):
            put_mark(directory, Mark.PROVEN)


def note_read_back(directory: Path) -> None:
    """Storage itself has given back all of it, and it is whole: an earlier finding stands no longer."""
    with contextlib.suppress(OSError):
        take_mark(directory, Mark.DAMAGED)
    note_proven(directory, whole=True)


def note_damaged(directory: Path, error: CorruptCheckpoint) -> None:
    """It is proven no longer; what only reading has shown is remembered. Not of one that is being removed."""
    note_proven(directory, whole=False)
    with contextlib.suppress(OSError):
        if isinstance(error, DigestMismatch) and exists(directory / MANIFEST_NAME):
            put_mark(directory, Mark.DAMAGED, why=str(error))


def damage_found(directory: Path) -> str | None:
    """What was found when it was read, and when; None if nothing was. PermissionError if that cannot be seen."""
    try:
        content = read_small(directory / Mark.DAMAGED)
    except FileNotFoundError:
        return None
    try:
        found = json.loads(content)
        return f"{found['why']}, found {found['marked_at']}"
    except (ValueError, KeyError, TypeError):
        return "found damaged when it was read"
