"""Where a probe writes: a directory of its own that always goes away, and what a killed probe left behind.

Only names of ours are ever removed, and only of probes that no longer run: the name of a work directory holds host,
process-id space and process. What another host left is named and left alone, since its probe may be running.
"""

import contextlib
import errno
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from rampmeter.core.errors import ConfigError
from rampmeter.core.units import format_bytes
from rampmeter.probing.errors import ProbeFailed, meaning
from rampmeter.probing.files import Files

_NAME = re.compile(r"\.rampmeter-probe-(?P<pid>\d{1,10})-[0-9a-f]{8}-(?P<place>.+)")
_INSIDE = re.compile(r"data-\d+|small-\d+-\d+")
_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)
_ROOM = 2
"""So many times what a probe may write must be free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """Work directories of earlier probes: removed now, or left alone: they may be in use, or hold other files."""

    removed: tuple[str, ...]
    strange: tuple[str, ...]


def data_name(writer: int) -> str:
    """The large file of a writer."""
    return f"data-{writer}"


def small_name(writer: int, number: int) -> str:
    """One small file of a writer."""
    return f"small-{writer}-{number}"


def read_directory(text: str) -> Path:
    """ConfigError unless it is one. Empty text (a variable that is not set) does not mean the working directory."""
    if not text:
        raise ConfigError("DIR is empty: name the directory to measure")
    directory = Path(text)
    if not directory.exists():
        raise ConfigError(f"{directory}: there is no such directory")
    if not directory.is_dir():
        raise ConfigError(f"{directory}: is no directory")
    return directory


def check_room(
    directory: Path, files: Files, *, max_bytes: int, num_files: int, size_was_given: bool
) -> None:
    """ConfigError unless twice of what may be written is free.

    Where the file system does not say what is free, somebody must have said how much may be written.
    """
    try:
        space = files.space(directory)
    except OSError as error:
        raise ConfigError(f"{directory}: {meaning(error)}") from None
    needed = _ROOM * max_bytes
    if space.free_bytes is None and not size_was_given:
        raise ConfigError(
            f"{directory} does not say how much is free: say with --size how much may be written"
        )
    if space.free_bytes is not None and space.free_bytes < needed:
        fits = space.free_bytes // _ROOM // 2**20
        advice = f". Give a --size of at most {fits}MiB" if fits else ""
        raise ConfigError(
            f"{directory} has {format_bytes(space.free_bytes)} free; a probe that may write "
            f"{format_bytes(max_bytes)} wants {format_bytes(needed)}{advice}"
        )
    if space.free_files is not None and space.free_files < _ROOM * num_files:
        raise ConfigError(
            f"{directory} has room for {space.free_files} more files only; a probe wants {_ROOM * num_files}"
        )


@contextlib.contextmanager
def work_directory(directory: Path, files: Files) -> Iterator[Path]:
    """A new directory inside; it and all that is in it is removed at the end, whatever the end is."""
    path = directory / f".rampmeter-probe-{os.getpid()}-{uuid4().hex[:8]}-{_place()}"
    try:
        files.make_directory(path)
    except OSError as error:
        why = f"{directory}: {meaning(error)}"
        raise (ConfigError(why) if error.errno in _NOT_WRITABLE else ProbeFailed(why)) from None
    try:
        yield path
    finally:
        _remove(path, files)


def _remove(path: Path, files: Files) -> None:
    try:
        clear(path, files)
        files.remove_directory(path)
    except FileNotFoundError:
        raise ProbeFailed(
            f"{path} is gone: somebody removed or moved the directory while it was measured, or unmounted the storage. "
            "If it is somewhere else now, please remove it there"
        ) from None
    except OSError as error:
        raise ProbeFailed(f"{path} could not be removed ({meaning(error)}): please remove it") from None


def clear(path: Path, files: Files) -> None:
    """Remove the files of a probe inside a work directory, and nothing else."""
    for entry in sorted(path.iterdir()):
        if _INSIDE.fullmatch(entry.name):
            files.remove(entry)


def sweep(directory: Path, files: Files) -> Leftovers:
    """Remove what killed probes of this host left in a directory."""
    removed: list[str] = []
    strange: list[str] = []
    for entry, place, pid in _work_directories(directory):
        ours = place == _place()
        if ours and _runs(pid):
            continue
        done = ours and _swept(entry, files)
        (removed if done else strange).append(entry.name)
    return Leftovers(removed=tuple(removed), strange=tuple(strange))


def _work_directories(directory: Path) -> Iterator[tuple[Path, str, int]]:
    """Work directories in a directory, with the place and the process of their probes."""
    try:
        found = sorted(directory.iterdir())
    except OSError as error:
        raise ConfigError(f"{directory}: {meaning(error)}") from None
    for entry in found:
        match = _NAME.fullmatch(entry.name)
        if match is not None and entry.is_dir() and not entry.is_symlink():
            yield entry, match["place"], int(match["pid"])


def _swept(path: Path, files: Files) -> bool:
    try:
        clear(path, files)
        files.remove_directory(path)
    except OSError:
        return False  # something else is in it, or it is not ours to remove
    return True


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _place() -> str:
    """Host and space of process ids: a process id means something only there."""
    try:
        space = os.readlink("/proc/self/ns/pid")  # noqa: PTH115  # no file is behind this link
    except OSError:
        space = ""
    return re.sub(r"[^A-Za-z0-9.]", "_", f"{socket.gethostname()}.{space}")[:200]
