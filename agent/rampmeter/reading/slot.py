"""The turn of one checkpoint at being read: taken before its first byte, given back whatever happens."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from rampmeter.reading.pace import UNPACED, LeasedPace, Pace
from rampmeter.throttle import Throttle

Slot = Callable[[int], AbstractContextManager[Pace]]
"""Called with the bytes of the checkpoint that is about to be read."""


class ReadDesk(Protocol):
    """Where a restore says how far it is."""

    def begin_read(self, num_bytes: int) -> Throttle: ...

    def read_through(self) -> None: ...

    def end_read(self) -> None: ...


@contextlib.contextmanager
def read_slot(desk: ReadDesk, num_bytes: int) -> Iterator[Pace]:
    """Does not wait itself: whoever reads the first byte waits for its rate."""
    try:
        throttle = desk.begin_read(num_bytes)
        yield LeasedPace(throttle, num_bytes, desk.read_through)
    finally:
        desk.end_read()


def unpaced(_num_bytes: int) -> AbstractContextManager[Pace]:
    """Nobody is asked."""
    return contextlib.nullcontext(UNPACED)
