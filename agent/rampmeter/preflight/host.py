"""What this host and the storage have left, as the kernel says it. Reads only, needs no rights, decides nothing.

None = unknown: not told, or told in a way that means nothing. Shared file systems say of inodes that there are 0 in
all, or (rclone's mounts) that 0 are left, whatever there is; where that is true, a save fails before its first byte.
Looking at a file system may block for as long as the storage does not answer.
"""

import os
import resource
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
_V1_UNLIMITED_BYTES = 1 << 60
"""The first version of control groups says "no limit" as a number nobody has memory for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What is left for a save."""

    free_bytes: int | None
    free_inodes: int | None
    memory_bytes: int | None
    free_descriptors: int | None


def room_at(root: Path) -> Room:
    """What is left on the storage of `root` and on this host. OSError if the root cannot be looked at."""
    found = os.statvfs(root)
    return Room(
        free_bytes=found.f_bavail * found.f_frsize if found.f_blocks else None,
        free_inodes=found.f_favail or None,
        memory_bytes=memory_bytes(),
        free_descriptors=free_descriptors(),
    )


def memory_bytes(*, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int | None:
    """Memory that can be had without swapping, within what the process's control group allows."""
    known = [left for left in (_host_memory(proc), _group_memory(proc, cgroups)) if left is not None]
    return min(known, default=None)


def _host_memory(proc: Path) -> int | None:
    kib = _fields(proc / "meminfo").get("MemAvailable")
    return None if kib is None else 1024 * kib


def _group_memory(proc: Path, cgroups: Path) -> int | None:
    """Limit less use, of which the page cache that is not in use does not count."""
    for directory, limit, use, cache in _group_files(proc, cgroups):
        limit_bytes, used_bytes = _number(directory / limit), _number(directory / use)
        if limit_bytes is None or used_bytes is None or limit_bytes >= _V1_UNLIMITED_BYTES:
            continue
        return max(0, limit_bytes - used_bytes + _fields(directory / "memory.stat").get(cache, 0))
    return None


def _group_files(proc: Path, cgroups: Path) -> list[tuple[Path, str, str, str]]:
    """Where the limits may stand: of the group itself, or at the top, where a container sees its own group."""
    found = []
    for line in _lines(proc / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            places = [cgroups / path.lstrip("/"), cgroups]
            found += [(place, "memory.max", "memory.current", "inactive_file") for place in places]
        elif "memory" in controllers.split(","):
            places = [cgroups / "memory" / path.lstrip("/"), cgroups / "memory"]
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            found += [(place, *names) for place in places]
    return found


def free_descriptors() -> int | None:
    """How many more files this process may open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        num_open = sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError:
        return None
    return None if limit == resource.RLIM_INFINITY else max(0, limit - num_open)


def umask() -> int | None:
    """The umask, without changing it: other threads may be creating files."""
    for line in _lines(_PROC / "self" / "status"):
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return None


def _fields(path: Path) -> dict[str, int]:
    """Lines like `name 12` or `name: 12 kB`."""
    parts = (line.replace(":", " ").split() for line in _lines(path))
    return {words[0]: int(words[1]) for words in parts if len(words) >= 2 and words[1].isdigit()}


def _number(path: Path) -> int | None:
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
