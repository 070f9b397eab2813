"""Durable file operations on a shared file system: whole files appear at once or not at all.

Everything under a root that must survive a crash goes through here: write to a temporary name, sync, move into place,
sync the directory. Nothing here decides anything, and nothing here treats "not permitted" as "not there".
"""

import contextlib
import errno
import os
import re
import shutil
import stat
from pathlib import Path
from uuid import uuid4

from rampmeter.core.clock import Clock, SystemClock

_REPLACE_ATTEMPTS = 6
_FIRST_BACKOFF_S = 0.02
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EIO})
"""What file systems without hard links answer; EIO is the answer of rclone's mounts."""

_TEMPORARY_NAME = re.compile(r"\.(.+)\.[0-9a-f]{32}\.tmp")


class NoPlainFile(OSError):
    """A directory, a FIFO or a device stands where a file was expected: nobody of ours has put it there."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EINVAL, "is no plain file; remove it, or move it elsewhere", str(path))


def read_small(path: Path) -> bytes:
    """The whole content of a small file. NoPlainFile if it is none: a FIFO would be waited for without an end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NoPlainFile(path)
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            return stream.read()
    finally:
        os.close(descriptor)


def exists(path: Path) -> bool:
    """Whether `path` exists; unlike Path.exists, never guesses when it was not allowed to look."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def sync_directory(directory: Path) -> None:
    """Make the names inside `directory` durable. OSError if the directory cannot be opened or synced."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_temporary(path: Path, content: bytes) -> Path:
    """Write and sync `content` beside `path` under a name nobody else uses; returns that name."""
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def meant_name(name: str) -> str | None:
    """What a temporary file is to be renamed to; None if `name` is none of ours."""
    found = _TEMPORARY_NAME.fullmatch(name)
    return None if found is None else found[1]


def replace_file(path: Path, content: bytes, *, clock: Clock | None = None) -> None:
    """Put `content` at `path`, durable and at once; whatever was there before is gone.

    A PermissionError of the rename is retried with growing pauses (a reader on SMB holds the target open), about
    0.6 s in all; then it is raised and the old content stands.
    """
    clock = clock or SystemClock()
    temporary = write_temporary(path, content)
    try:
        _rename(temporary, path, clock)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def _rename(source: Path, target: Path, clock: Clock) -> None:
    pause_s = _FIRST_BACKOFF_S
    for _ in range(_REPLACE_ATTEMPTS - 1):
        try:
            source.replace(target)
        except PermissionError:
            clock.sleep(pause_s)
            pause_s *= 2
        else:
            return
    source.replace(target)


def create_once(path: Path, content: bytes) -> bool:
    """Create `path` with its whole content unless it exists; says whether this call created it.

    A link to a synced temporary file is both exclusive and never seen half written. File systems without links get
    a plain O_EXCL create, where a crash can leave an empty file; readers must know that.
    """
    temporary = write_temporary(path, content)
    try:
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if not _create_exclusively(path, content):
                return False
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)
    return True


def _create_exclusively(path: Path, content: bytes) -> bool:
    try:
        with path.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
    except FileExistsError:
        return False
    return True


def remove_tree(directory: Path) -> None:
    """Remove a directory and all inside. OSError if something stays, except `.nfs` leftovers of open files."""
    failures: list[OSError] = []

    def note(_function: object, path: str, info: tuple[type[BaseException], BaseException, object]) -> None:
        error = info[1]
        if isinstance(error, FileNotFoundError) or Path(path).name.startswith(".nfs"):
            return
        if isinstance(error, OSError):
            failures.append(error)

    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(directory, onerror=note)
    remaining = [error for error in failures if not _only_nfs_leftovers(directory, error)]
    if remaining:
        raise remaining[0]


def _only_nfs_leftovers(directory: Path, error: OSError) -> bool:
    if error.errno != errno.ENOTEMPTY or not directory.is_dir():
        return False
    return all(entry.name.startswith(".nfs") for entry in directory.iterdir())
