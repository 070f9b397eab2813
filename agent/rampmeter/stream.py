"""The stream that every byte of a checkpoint passes: paced, hashed and pushed out of the page cache in one pass.

It only ever goes forward: no seek, no append, no second pass. Its first error is reported at once, because the layers
above overwrite it with their own complaints; whoever asks later gets the real reason.
"""

import io
from collections.abc import Callable
from typing import IO

from typing_extensions import Buffer

from rampmeter.hashing import FileHasher, HashedFile
from rampmeter.pushout import push_out
from rampmeter.throttle import Throttle


class MeteredStream:
    """Wraps a binary stream that is open for writing; one thread at a time. Has what torch calls, and no more."""

    def __init__(
        self,
        inner: IO[bytes],
        *,
        throttle: Throttle,
        on_first_write: Callable[[], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._inner = inner
        self._on_first_write = on_first_write
        self._throttle = throttle
        self._on_error = on_error
        self._error: BaseException | None = None
        self._hasher = FileHasher()
        self._pushed_bytes = 0
        self._descriptor = _descriptor_of(inner)

    def tell(self) -> int:
        return self._hasher.num_bytes

    def write(self, data: Buffer) -> int:
        """Write all of `data`, however long the lease makes that take.

        Raises LeaseLost or OSError, and the same one again at each later call: nothing follows a gap.
        """
        if self._error is not None:
            raise self._error
        if self.tell() == 0:
            self._on_first_write()
        view = memoryview(data).cast("B")
        num_bytes = len(view)
        try:
            while view:
                chunk_bytes = self._throttle.chunk_bytes()
                self._write_chunk(view[:chunk_bytes])
                view = view[chunk_bytes:]
        except BaseException as error:
            self._fail(error)
            raise
        return num_bytes

    def _fail(self, error: BaseException) -> None:
        self._error = error
        self._on_error(error)

    def _write_chunk(self, chunk: memoryview) -> None:
        self._hasher.update(chunk)
        self._throttle.begin_write(len(chunk))
        try:
            self._inner.write(chunk)
            self._push_when_full()
        finally:
            self._throttle.end_blocked()

    def _push_when_full(self) -> None:
        """A stream without descriptor has no page cache here: what it took is on its way, and counts as gone."""
        waiting_bytes = self.tell() - self._pushed_bytes
        if self._descriptor is not None:
            if waiting_bytes < self._throttle.window_bytes():
                return
            self._inner.flush()
            push_out(self._descriptor, self.tell())
        self._pushed_bytes = self.tell()
        self._throttle.add_done(waiting_bytes)

    def flush(self) -> None:
        """Does nothing: torch flushes after each tensor, which would undo the windows."""

    def close(self) -> None:
        """Ends the sync that `fileno` began. torch also calls this after each tensor, so the file stays open."""
        self._throttle.end_blocked()

    def fileno(self) -> int:
        """The descriptor, for the sync that follows at once: what Python still holds is flushed first."""
        self._throttle.begin_blocked()
        try:
            self._inner.flush()
            return self._inner.fileno()
        except io.UnsupportedOperation:
            raise
        except OSError as error:
            self._fail(error)
            raise

    def finish(self, name: str) -> HashedFile:
        """All is written and synced: counts the rest as gone and returns the digests."""
        self.close()
        self._throttle.add_done(self.tell() - self._pushed_bytes)
        self._pushed_bytes = self.tell()
        return self._hasher.finish(name)


def _descriptor_of(inner: IO[bytes]) -> int | None:
    """The descriptor to push out by, or None where the stream has none (object stores)."""
    try:
        return inner.fileno()
    except (OSError, AttributeError):
        return None
