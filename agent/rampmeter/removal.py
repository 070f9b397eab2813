"""Removes one checkpoint so that whoever looks, whenever, sees a whole one or none, and anybody can finish the job.

The manifest is the token, and a deletion renames it: MANIFEST.json (committed), MANIFEST.withdrawn (on trial: a pin
that came in between brings it back), MANIFEST.deleting (no way back). Renames are atomic and of one file, so processes
on any number of machines need no lock: of two that move the token one finds it gone. The token goes after all other
files, so a deletion that was killed says so itself, and the next sweep of anybody goes on with it.
Whether a checkpoint may go is decided by the callers.
"""

import contextlib
import errno
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from rampmeter.core.clock import Clock
from rampmeter.files import exists, remove_tree, sync_directory
from rampmeter.layout import MANIFEST_NAME
from rampmeter.marks import Mark, has_mark, put_mark, take_mark

WITHDRAWN_NAME = "MANIFEST.withdrawn"
DELETING_NAME = "MANIFEST.deleting"
PAUSE_S = 0.005
"""Between two files: a metadata server that all jobs share sees at most 200 deletions a second of each."""

_MAX_PASSES = 3
_PIN_TRIES = 40
_PIN_PAUSE_S = 0.05

Breathe = Callable[[], object]
"""Called before each file goes; what it raises ends the removal there."""


class Standing(StrEnum):
    """Where a checkpoint's directory is between its first file and its last."""

    UNCOMMITTED = "uncommitted"
    COMMITTED = "committed"
    WITHDRAWN = "withdrawn"
    DELETING = "deleting"


def standing(directory: Path) -> Standing:
    """What the token says. PermissionError if that cannot be seen.

    Looked at twice before the answer is `uncommitted`: a token that is just being moved back was seen in neither place.
    """
    for _ in range(2):
        if exists(directory / MANIFEST_NAME):
            return Standing.COMMITTED
        if exists(directory / WITHDRAWN_NAME):
            return Standing.WITHDRAWN
        if exists(directory / DELETING_NAME):
            return Standing.DELETING
    return Standing.UNCOMMITTED


def remove(directory: Path, breathe: Breathe) -> bool:
    """Remove a committed checkpoint, or go on with a removal that was cut off. False: it is pinned, and stands.

    OSError if it cannot be removed; if it has lost its token by then, the next sweep tries again.
    """
    if directory.is_symlink():
        raise OSError(errno.ELOOP, "is a symbolic link: remove the link and what it points to yourself")
    if _move(directory, MANIFEST_NAME, WITHDRAWN_NAME) and not _synced(directory):
        return True
    return _resume(directory, breathe)


def remove_leftover(directory: Path, breathe: Breathe) -> bool:
    """Remove a directory that was never committed. False: it has been committed or pinned in the meantime."""
    if directory.is_symlink() or standing(directory) is not Standing.UNCOMMITTED:
        return False
    if has_mark(directory, Mark.PINNED):  # only what was committed is ever pinned: its token is on the move
        return False
    _empty(directory, breathe)
    return True


def pin(directory: Path, clock: Clock) -> bool:
    """Make a committed checkpoint stay. False: it is not committed, or a deletion was faster.

    The mark first and then the look at the token; a deletion does it the other way round, so one of the two sees the
    other. One that has withdrawn the token brings it back, which is waited for up to 2 s; else the token is brought
    back here, because the one that took it was killed.
    """
    if standing(directory) not in (Standing.COMMITTED, Standing.WITHDRAWN):
        return False
    put_mark(directory, Mark.PINNED)
    for _ in range(_PIN_TRIES):
        found = standing(directory)
        if found is not Standing.WITHDRAWN:
            break
        clock.sleep(_PIN_PAUSE_S)
    else:
        put_back(directory)
        found = standing(directory)
    if found is Standing.COMMITTED:
        return True
    with contextlib.suppress(FileNotFoundError):
        take_mark(directory, Mark.PINNED)
    return False


def put_back(directory: Path) -> bool:
    """Make a withdrawn checkpoint count again, if it is still withdrawn and nothing else."""
    return _move(directory, WITHDRAWN_NAME, MANIFEST_NAME) and _synced(directory)


def _resume(directory: Path, breathe: Breathe) -> bool:
    if has_mark(directory, Mark.PINNED) and put_back(directory):
        return False
    if _move(directory, WITHDRAWN_NAME, DELETING_NAME) and not _synced(directory):
        return True
    if exists(directory / DELETING_NAME):
        _empty(directory, breathe)
    return not exists(directory / MANIFEST_NAME)


def _move(directory: Path, source: str, target: str) -> bool:
    """Whether the token was there to be moved."""
    try:
        (directory / source).rename(directory / target)
    except FileNotFoundError:
        return False
    return True


def _synced(directory: Path) -> bool:
    """Whether the directory is still there to be synced: another process may have finished the deletion."""
    try:
        sync_directory(directory)
    except FileNotFoundError:
        return False
    return True


def _empty(directory: Path, breathe: Breathe) -> None:
    """Remove all files, the token last, then the directory; again if a writer that woke up has added some.

    `.nfs` files belong to readers that still have a shard open, and go with them.
    """
    for _ in range(_MAX_PASSES):
        try:
            _remove_files(directory, breathe)
            (directory / DELETING_NAME).unlink(missing_ok=True)
            directory.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if all(entry.name.startswith(".nfs") for entry in directory.iterdir()):
                return
        else:
            return
    raise OSError(errno.ENOTEMPTY, "somebody keeps writing into it", str(directory))


def _remove_files(directory: Path, breathe: Breathe) -> None:
    for entry in sorted(directory.iterdir()):
        if entry.name == DELETING_NAME or entry.name.startswith(".nfs"):
            continue
        breathe()
        if entry.is_dir() and not entry.is_symlink():
            remove_tree(entry)
        else:
            entry.unlink(missing_ok=True)
