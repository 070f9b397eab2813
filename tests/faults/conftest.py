"""What the faults share: a mount that can be stopped and killed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.fuse import Remount, mounting


@pytest.fixture
def remount(tmp_path: Path) -> Iterator[Remount]:
    """Mounts the same shared storage (again), whatever became of the mount before."""
    with mounting(tmp_path) as mount:
        yield mount
