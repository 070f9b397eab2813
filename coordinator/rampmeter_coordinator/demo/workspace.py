"""Where a demo works and how it is stopped: a directory that goes away, and signals that end everything in order."""

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rampmeter.core.errors import ConfigError

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def work_directory(kept: str | None) -> Iterator[Path]:
    """A temporary directory that is removed at the end, or `kept`, which must be empty and stays as it is."""
    if kept is None:
        path = Path(tempfile.mkdtemp(prefix="rampmeter-demo-"))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)
        return
    path = Path(kept).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
        is_empty = not any(path.iterdir())
    except OSError as error:
        raise ConfigError(f"option --keep: {path}: {error.strerror}") from None
    if not is_empty:
        raise ConfigError(f"option --keep: {path} is not empty")
    yield path


@contextmanager
def stoppable() -> Iterator[None]:
    """Inside, the first of SIGINT, SIGTERM and SIGHUP raises KeyboardInterrupt; the ones after it change nothing.

    The second Ctrl-C of an impatient user must not keep us from ending our processes.
    """

    def stop(_number: int, _frame: FrameType | None) -> None:
        for number in _STOPPING:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in _STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
