"""Ends or stops this process at a file operation under a directory: the n-th one, or the next one with a name.

Writes, syncs, renames, links, removals and new directories are seen by functions that stand in place of Python's own;
nothing in the product knows of them. An operation is named by what it does and to which file: `write __0_0.distcp`,
`rename MANIFEST.json`; names that differ from run to run are made alike (`step`, `claim`, `.LATEST.tmp`).
The state on the disk after one operation is that before the next one, so every instant is one of these.
"""

import io
import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

BEGIN = "mkdir step"
"""The first operation of a save."""

TRACE = "@did"
"""What a traced process prints before each operation."""


class Points:
    """Of one process, from `watch` on."""

    def __init__(self, directory: Path, reach: Callable[[int, str], None]) -> None:
        self._directory = str(directory)
        self._reach = reach
        self._lock = threading.RLock()
        self._num_seen = 0

    def watch(self) -> None:
        """Stand in place of what changes files."""
        for verb, name in (("rename", "replace"), ("rename", "rename"), ("link", "link")):
            setattr(os, name, self._noting(getattr(os, name), verb, lambda args: args[1]))
        for verb, name in (("remove", "unlink"), ("rmdir", "rmdir"), ("mkdir", "mkdir")):
            setattr(os, name, self._noting(getattr(os, name), verb, lambda args: args[0]))
        os.fsync = self._noting(os.fsync, "sync", lambda args: f"/proc/self/fd/{args[0]}")
        io.open = self._opening(io.open)

    def see(self, verb: str, path: Any) -> None:
        """An operation is about to be done."""
        path = os.fsdecode(path)
        if path.startswith("/proc/self/fd/"):
            path = str(Path(path).readlink())
        if not path.startswith(self._directory):
            return
        with self._lock:  # while one thread is at its point, the others make no operation either
            number, self._num_seen = self._num_seen, self._num_seen + 1
            self._reach(number, f"{verb} {alike(Path(path).name, self._directory)}")

    def _noting(self, function: Callable[..., Any], verb: str, path: Callable[[tuple[Any, ...]], Any]) -> Any:
        def noting(*args: Any, **kwargs: Any) -> Any:
            self.see(verb, path(args))
            return function(*args, **kwargs)

        return noting

    def _opening(self, function: Callable[..., Any]) -> Any:
        points = self

        def opening(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if not {"b"} < set(mode) or "r" in mode or isinstance(file, int):
                return function(file, mode, *args, **kwargs)
            points.see("open", file)
            return Writer(io.FileIO(file, mode.replace("b", "")), lambda: points.see("write", file))

        return opening


class Writer(io.BufferedWriter):
    """Says so before each write."""

    def __init__(self, raw: io.RawIOBase, about_to: Callable[[], None]) -> None:
        super().__init__(raw)
        self._about_to = about_to

    def write(self, data: Any) -> int:
        self._about_to()
        return super().write(data)


def alike(name: str, directory: str) -> str:
    """The name without what differs from run to run."""
    if name == Path(directory).name:
        return "root"
    name = re.sub(r"^step-\d+\.a\d+\..*", "step", name)
    name = re.sub(r"^(\.?)\d{5}\b", r"\1claim", name)
    return re.sub(r"\.[0-9a-f]{32}\.tmp$", ".tmp", name)


def nowhere() -> None:
    """The process is left alone."""


def trace(directory: Path) -> None:
    """Print every operation before it is done."""
    Points(directory, lambda _number, name: _say(f"{TRACE} {name}")).watch()


def end_at(directory: Path, number: int) -> None:
    """SIGKILL before the operation with this number, counted from here."""
    Points(directory, lambda seen, _name: _signal(signal.SIGKILL) if seen == number else None).watch()


def end_in_save(directory: Path, name: str, occurrence: int = 1) -> None:
    """SIGKILL before the n-th operation with this name, counted from when the first save has its directory made."""
    _signal_before(signal.SIGKILL, directory, name, occurrence, since=BEGIN)


def stop_before(directory: Path, name: str, occurrence: int = 1) -> None:
    """SIGSTOP before the n-th operation with this name, counted from here; SIGCONT lets it go on."""
    _signal_before(signal.SIGSTOP, directory, name, occurrence)


def _signal_before(
    signal_number: int, directory: Path, name: str, occurrence: int, *, since: str | None = None
) -> None:
    seen: list[str] = []

    def reach(_number: int, found: str) -> None:
        if seen or since in (None, found):
            seen.append(found)
        if found == name and seen.count(name) == occurrence:
            _signal(signal_number)

    Points(directory, reach).watch()


def _signal(number: int) -> None:
    signal.pthread_kill(threading.get_ident(), number)  # else another thread takes it, a moment later


def _say(line: str) -> None:
    os.write(1, f"{line}\n".encode())
