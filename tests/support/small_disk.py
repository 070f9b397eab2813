"""A real file system of a given size, which a file of ballast fills."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PIECE_BYTES = 64 * 1024


def may_mount() -> bool:
    """Whether this process may mount a file system."""
    return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], check=False).returncode == 0


@contextmanager
def small_disk(where: Path, num_bytes: int) -> Iterator[Path]:
    """A tmpfs, for who `may_mount`."""
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={num_bytes}", "tmpfs", str(where)]
    subprocess.run(mount, check=True, capture_output=True)
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)


def fill(disk: Path, left_bytes: int = 0) -> Path:
    """A file that takes all but about `left_bytes` of what is free, whoever else writes; remove it to give it back."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while _free_bytes(disk) > left_bytes:
            file.write(bytes(_PIECE_BYTES))
    return ballast


def _free_bytes(disk: Path) -> int:
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize
