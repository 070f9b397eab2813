"""The stream: everything hashed, windows pushed out, the first error kept, flushed before it is synced."""

import ctypes
import errno
import io
import mmap
import os
from pathlib import Path
from typing import Any

import pytest
import xxhash

from rampmeter import pushout, stream
from rampmeter.core.errors import LeaseLost
from rampmeter.stream import MeteredStream
from rampmeter.throttle import Throttle

MIB = 1024 * 1024


class Probe:
    """Counts what the stream calls back."""

    def __init__(self) -> None:
        self.num_first = 0
        self.errors: list[BaseException] = []

    def first(self) -> None:
        self.num_first += 1


def _stream(inner: Any, throttle: Throttle, probe: Probe) -> MeteredStream:
    return MeteredStream(inner, throttle=throttle, on_first_write=probe.first, on_error=probe.errors.append)


@pytest.fixture
def throttle() -> Throttle:
    throttle = Throttle()
    throttle.set_rate(None)
    return throttle


def test_content_and_digest_are_those_of_the_writes(tmp_path: Path, throttle: Throttle) -> None:
    """Small and large writes of any buffer type arrive in order; the first is announced once."""
    probe = Probe()
    pieces = [b"abc", bytearray(3 * MIB + 5), memoryview(b"x" * 100), b""]
    with (tmp_path / "f").open("wb") as inner:
        metered = _stream(inner, throttle, probe)
        assert [metered.write(piece) for piece in pieces] == [3, 3 * MIB + 5, 100, 0]
        metered.close()
        file = metered.finish("f")
    content = (tmp_path / "f").read_bytes()
    assert content == b"".join(bytes(piece) for piece in pieces)
    assert file.digest == xxhash.xxh3_128(content).hexdigest()
    assert (file.num_bytes, probe.num_first) == (len(content), 1)
    assert throttle.counters().done_bytes == len(content)


def test_each_window_is_pushed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 8 MB/s a window is 2 MB: after each, all bytes so far are pushed and counted."""
    pushed: list[int] = []
    monkeypatch.setattr(stream, "push_out", lambda _descriptor, end_bytes: pushed.append(end_bytes))
    throttle = Throttle()
    throttle.set_rate(None)
    monkeypatch.setattr(throttle, "window_bytes", lambda: 2 * MIB)
    with (tmp_path / "f").open("wb") as inner:
        metered = _stream(inner, throttle, Probe())
        for _ in range(7):
            metered.write(bytes(MIB))
        assert pushed == [2 * MIB, 4 * MIB, 6 * MIB]
        assert throttle.counters().done_bytes == 6 * MIB
        metered.finish("f")
    assert throttle.counters().done_bytes == 7 * MIB


def test_pushed_bytes_left_python_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, throttle: Throttle
) -> None:
    """What is pushed out was handed to the kernel first."""
    sizes: list[tuple[int, int]] = []
    monkeypatch.setattr(
        stream, "push_out", lambda d, end_bytes: sizes.append((os.fstat(d).st_size, end_bytes))
    )
    monkeypatch.setattr(throttle, "window_bytes", lambda: 10)
    with (tmp_path / "f").open("wb") as inner:
        _stream(inner, throttle, Probe()).write(b"0123456789abc")
    assert sizes == [(13, 13)]


def test_sync_sees_all_bytes(tmp_path: Path, throttle: Throttle) -> None:
    """Asking for the descriptor flushes first, so that the sync that follows covers everything."""
    with (tmp_path / "f").open("wb") as inner:
        metered = _stream(inner, throttle, Probe())
        metered.write(b"tail")
        assert os.fstat(metered.fileno()).st_size == 4


def test_time_in_the_sync_counts_as_blocked(tmp_path: Path, throttle: Throttle) -> None:
    """Between the descriptor and the close that follows the flush is blocked in the file."""
    with (tmp_path / "f").open("wb") as inner:
        metered = _stream(inner, throttle, Probe())
        metered.write(b"tail")
        before_s = throttle.counters().blocked_s
        os.fsync(metered.fileno())
        metered.close()
        after_s = throttle.counters().blocked_s
    assert after_s > before_s
    assert throttle.counters().blocked_s == after_s


def test_flush_and_close_between_tensors_do_nothing(throttle: Throttle) -> None:
    """torch ends each tensor with flush and close; the file goes on."""
    inner = io.BytesIO()
    metered = _stream(inner, throttle, Probe())
    for part in (b"one", b"two"):
        metered.write(part)
        metered.flush()
        metered.close()
    assert inner.getvalue() == b"onetwo"
    with pytest.raises(io.UnsupportedOperation):
        metered.fileno()


def test_the_first_error_comes_back_at_each_later_write(throttle: Throttle) -> None:
    """After a failed write nothing follows the gap, and the reason stays the first one."""

    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    probe = Probe()
    metered = _stream(Full(), throttle, probe)
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            metered.write(b"x")
    assert [type(error) for error in probe.errors] == [OSError]


def test_a_lost_lease_stops_within_one_chunk(tmp_path: Path) -> None:
    """A large write ends at the chunk during which the lease was lost."""
    throttle = Throttle()
    throttle.set_rate(None)
    taken: list[int] = []

    def lose(num_bytes: int) -> None:
        taken.append(num_bytes)
        if len(taken) == 3:
            raise LeaseLost("lease_lost")

    throttle.begin_write = lose  # type: ignore[method-assign]
    with (tmp_path / "f").open("wb") as inner, pytest.raises(LeaseLost):
        _stream(inner, throttle, Probe()).write(bytes(10 * MIB))
    assert (tmp_path / "f").stat().st_size == 2 * MIB


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_push_out_has_three_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: int) -> None:
    """Where the cheaper ways are missing, the next one does it, down to fdatasync."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    if missing >= 1:
        monkeypatch.delattr(os, "posix_fadvise")
    if missing >= 2:
        monkeypatch.setattr(pushout, "_sync_file_range", lambda: None)
    with (tmp_path / "f").open("wb", buffering=0) as inner:
        inner.write(bytes(4 * MIB))
        pushout.push_out(inner.fileno(), 4 * MIB)
    assert bool(synced) == (missing == 2)


def test_pushed_pages_leave_the_page_cache(tmp_path: Path) -> None:
    """Most of a large file written in windows is no longer cached when the last window is out."""
    if tmp_path.stat().st_dev == Path("/dev/shm").stat().st_dev:
        pytest.skip("a memory file system keeps its pages")
    size, window = 64 * MIB, 4 * MIB
    with (tmp_path / "f").open("wb+", buffering=0) as inner:
        for end in range(window, size + 1, window):
            inner.write(os.urandom(window))
            pushout.push_out(inner.fileno(), end)
        os.fsync(inner.fileno())
        pushout.push_out(inner.fileno(), size)
        with mmap.mmap(inner.fileno(), size) as mapping:
            address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
            resident = (ctypes.c_ubyte * (size // mmap.PAGESIZE))()
            status = ctypes.CDLL(None).mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), resident)
            del address
            cached = sum(flag & 1 for flag in resident)
    assert status == 0
    assert cached * mmap.PAGESIZE < size / 4
