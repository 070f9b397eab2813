"""A writer class whose shards go to /dev/full for as long as a file is there: every write says ENOSPC, really."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter

FULL = "RAMPMETER_TEST_FULL"
"""Names the file that makes it so; beside it `.said` is made as soon as the device has refused a write."""


def said(full: Path) -> Path:
    """What is there once a write was refused."""
    return full.with_suffix(".said")


class FullFiles(FileSystem):
    """Opens the device in place of a shard."""

    @contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
        full = Path(os.environ[FULL])
        is_full = mode == "wb" and str(path).endswith(".distcp") and full.exists()
        with super().create_stream(Path("/dev/full") if is_full else path, mode) as stream:
            try:
                yield stream
            except Exception:  # torch tells of the refusal in words of its own
                said(full).touch()
                raise


class FullWriter(FileSystemWriter):
    """Writes as its base does otherwise."""

    def __init__(self, path: Any, **more: Any) -> None:
        super().__init__(path, **more)
        self.fs = FullFiles()
