"""A real shared storage of limited speed: an rclone mount (FUSE) whose limit can be set while jobs write to it.

rclone writes through: what a job has written is in the backing directory or still waits in its write call.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from support.servers import running
from support.waiting import wait_for

_CONTROL = re.compile(r"remote control on (http://\S+)")


@dataclass(frozen=True, slots=True)
class SharedMount:
    """`path` is what jobs see; `backing` is where the bytes are."""

    path: Path
    backing: Path
    control_url: str

    def limit(self, bytes_per_s: int) -> None:
        """All writers together get this much from now on."""
        answer = httpx.post(f"{self.control_url}core/bwlimit", json={"rate": f"{bytes_per_s}B"})
        assert answer.is_success, answer.text


@contextmanager
def shared_mount(where: Path, bytes_per_s: int) -> Iterator[SharedMount]:
    """Mounted at `where/mount`, unmounted at the end whatever happened."""
    path, backing, log = where / "mount", where / "backing", where / "rclone.log"
    for directory in (path, backing):
        directory.mkdir()
    with running(_command(backing, path, bytes_per_s), log, RCLONE_CONFIG=os.devnull) as process:
        try:
            wait_for(lambda: path.is_mount() or process.poll() is not None, what="the mount")
            assert process.poll() is None, log.read_text()
            wait_for(lambda: _CONTROL.search(log.read_text()), what="the address of rclone's remote control")
            (control_url,) = _CONTROL.search(log.read_text()).groups()
            yield SharedMount(path, backing, control_url)
        finally:
            _unmount(path)


def _command(backing: Path, path: Path, bytes_per_s: int) -> list[str | Path]:
    """No buffer, no cache, no write-back: the limit is felt by who writes, at once."""
    unbuffered = [
        "--vfs-cache-mode",
        "off",
        "--buffer-size",
        "0",
        "--dir-cache-time",
        "0",
        "--attr-timeout",
        "0",
    ]
    control = ["--rc", "--rc-addr", "127.0.0.1:0"]
    return ["rclone", "mount", backing, path, *unbuffered, "--bwlimit", f"{bytes_per_s}B", *control]


def _unmount(path: Path) -> None:
    """Also a busy one: what still writes to it must not keep the machine from being clean."""
    for how in ("-u", "-uz"):
        if not path.is_mount():
            return
        subprocess.run(["fusermount3", how, path], capture_output=True, check=False, timeout=30)
