"""Small pieces are gathered before they are paid for; nothing of them is lost, reordered or synced too early."""

import errno
import os
from array import array
from pathlib import Path

import pytest
import xxhash

from rampmeter.gathering import GATHERED_BYTES, GatheringStream
from rampmeter.stream import MeteredStream
from rampmeter.throttle import Throttle

PIECE = b"x" * 100


class Counting(MeteredStream):
    """Counts what is paid for at once."""

    num_writes = 0

    def write(self, data) -> int:
        self.num_writes += 1
        return super().write(data)


class Full:
    """A file system without room."""

    def write(self, _data) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def metered(inner, on_error=lambda _error: None) -> Counting:
    throttle = Throttle()
    throttle.set_rate(None)
    return Counting(inner, throttle=throttle, on_first_write=lambda: None, on_error=on_error)


def test_what_was_written_arrives_in_order(tmp_path: Path) -> None:
    """Pieces of any size and kind; `tell` counts what is held, and the digest is that of the file."""
    pieces = [
        b"abc",
        bytearray(3 * GATHERED_BYTES),
        memoryview(b"y" * 7),
        array("i", [1, 2, 3]),
        b"",
        PIECE * 700,
        b"end",
    ]
    with (tmp_path / "f").open("wb") as inner:
        stream = GatheringStream(metered(inner))
        told = []
        for piece in pieces:
            assert stream.write(piece) == memoryview(piece).nbytes
            told.append(stream.tell())
        file = stream.finish("f")
    content = (tmp_path / "f").read_bytes()
    assert content == b"".join(bytes(memoryview(piece).cast("B")) for piece in pieces)
    assert told[-1] == file.num_bytes == len(content)
    assert file.digest == xxhash.xxh3_128(content).hexdigest()


def test_small_pieces_are_paid_for_together(tmp_path: Path) -> None:
    """Ten thousand of them cost a lease no more than their bytes do."""
    with (tmp_path / "f").open("wb") as inner:
        counting = metered(inner)
        stream = GatheringStream(counting)
        for _ in range(10_000):
            stream.write(PIECE)
        stream.finish("f")
    assert counting.num_writes <= 10_000 * len(PIECE) / GATHERED_BYTES + 1


def test_a_sync_covers_what_was_held(tmp_path: Path) -> None:
    """Whoever asks for the descriptor syncs next: all is in the file by then, after a flush that does nothing."""
    with (tmp_path / "f").open("wb") as inner:
        stream = GatheringStream(metered(inner))
        stream.write(PIECE)
        stream.flush()
        stream.close()  # as torch does after each tensor
        stream.write(PIECE)
        os.fsync(stream.fileno())
        assert (tmp_path / "f").read_bytes() == 2 * PIECE
        stream.finish("f")


def test_an_error_of_what_was_held_is_reported_and_comes_again() -> None:
    """The last piece may be the one that is told of: nothing follows the gap, and no sync hides it."""
    errors: list[BaseException] = []
    stream = GatheringStream(metered(Full(), errors.append))
    stream.write(PIECE)
    with pytest.raises(OSError, match="No space"):
        stream.fileno()
    with pytest.raises(OSError, match="No space"):
        stream.write(b"z" * GATHERED_BYTES)
    assert len(errors) == 1
