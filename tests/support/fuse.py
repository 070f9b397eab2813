"""A mount whose server is a process of ours: stopped, its storage hangs; killed, it is gone. rclone on FUSE."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.waiting import wait_for

Remount = Callable[[], "subprocess.Popen[bytes]"]


def needs_fuse(test: Callable[..., None]) -> Callable[..., None]:
    """A FUSE mount whose server can be stopped and killed."""
    no_device = not Path("/dev/fuse").exists()
    test = pytest.mark.skipif(no_device, reason="there is no /dev/fuse: nothing can be mounted")(test)
    return pytest.mark.debian("rclone")(pytest.mark.debian("fuse3", binary="fusermount3")(test))


@contextmanager
def mounting(where: Path) -> Iterator[Remount]:
    """Mounts `where/backing` at `where/mount` (again), whatever became of the mount before."""
    backing, path = where / "backing", where / "mount"
    for directory in (backing, path):
        directory.mkdir()
    servers: list[subprocess.Popen[bytes]] = []

    def mount() -> "subprocess.Popen[bytes]":
        subprocess.run(["fusermount3", "-uz", path], capture_output=True, check=False)
        plain = ["--vfs-cache-mode", "off", "--dir-cache-time", "0", "--attr-timeout", "0"]
        server = subprocess.Popen(
            ["rclone", "mount", backing, path, *plain],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"RCLONE_CONFIG": os.devnull},
        )
        servers.append(server)
        wait_for(path.is_mount, what="the mount")
        return server

    try:
        yield mount
    finally:
        for server in servers:
            server.kill()
            server.wait(15)
        subprocess.run(["fusermount3", "-uz", path], capture_output=True, check=False)
