"""A writer class whose process is ended in the middle of a save, by itself: for one that writes beside training.

The order is a file that the environment names, for that is all that reaches such a process before its first save. The
first process that finds it takes it away, so that the one that comes after it lives.
"""

import os
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystemWriter

from support import points

ORDER = "RAMPMETER_TEST_ORDER"
"""Names a file that holds the name of the operation before which to end."""


class ArmedWriter(FileSystemWriter):
    """Writes as its base does."""

    def __init__(self, path: Any, **more: Any) -> None:
        super().__init__(path, **more)
        order = Path(os.environ[ORDER])
        if order.exists():
            name = order.read_text()
            order.unlink()
            points.end_in_save(Path(path).parent, name)
