"""Gathers the small pieces in which torch writes: forty for a tensor, however small that is.

Pacing, hashing and counting each of them would take longer than writing them. What is held here has not been paid for
and has not been written; it is never more than the smallest chunk of a lease. Decides nothing about rates.
"""

from typing_extensions import Buffer

from rampmeter.hashing import HashedFile
from rampmeter.stream import MeteredStream

GATHERED_BYTES = 64 * 1024


class GatheringStream:
    """Before a metered stream, with the same methods; one thread at a time."""

    def __init__(self, inner: MeteredStream) -> None:
        self._inner = inner
        self._held = bytearray()

    def tell(self) -> int:
        return self._inner.tell() + len(self._held)

    def write(self, data: Buffer) -> int:
        """Take all of `data`. Raises what the metered stream does, perhaps of pieces that were taken before."""
        num_bytes = memoryview(data).nbytes
        if num_bytes >= GATHERED_BYTES:
            self._pass_on()
            return self._inner.write(data)
        self._held += data
        if len(self._held) >= GATHERED_BYTES:
            self._pass_on()
        return num_bytes

    def _pass_on(self) -> None:
        if self._held:
            held, self._held = self._held, bytearray()
            self._inner.write(held)

    def flush(self) -> None:
        """Does nothing, as that of the metered stream: what is held goes before anything is synced."""

    def close(self) -> None:
        """As that of the metered stream: torch calls it after each tensor, and the file stays open."""
        self._inner.close()

    def fileno(self) -> int:
        """The descriptor, for the sync that follows at once."""
        self._pass_on()
        return self._inner.fileno()

    def finish(self, name: str) -> HashedFile:
        """All is written and synced."""
        self._pass_on()
        return self._inner.finish(name)
