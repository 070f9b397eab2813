"""What a probe does to a directory: within its bounds, as the agent's writer does it, and nothing left behind."""

import os
import threading
import zlib

import pytest

from rampmeter.core.clock import ManualClock
from rampmeter.probing.errors import ProbeFailed, Stopped
from rampmeter.probing.measuring import MAX_SMALL_FILES, PATIENCE_S
from support.probes import MIB, HangingFiles, SteadyFiles, meter


def test_the_rate_of_a_steady_storage_is_found(tmp_path):
    """0.1 s a MiB and 2 s for the last sync: 40 MiB in 4 s, durable in 6."""
    files = SteadyFiles(write_s=0.1, sync_s=2.0)
    (found,) = meter(tmp_path, files, max_bytes=40 * MIB, duration_s=1000).measure([1])
    assert found.num_bytes == 40 * MIB
    assert found.write_s == pytest.approx(4.0)
    assert found.durable_s == pytest.approx(6.0)
    assert found.sync_s == pytest.approx(2.0)
    assert found.durable_bytes_per_s == pytest.approx(40 * MIB / 6.0)


def test_a_small_file_is_timed_to_its_sync(tmp_path):
    """Create, 4 KiB, sync, close."""
    files = SteadyFiles(write_s=0.1, sync_s=2.0)
    (found,) = meter(tmp_path, files, duration_s=10_000).measure([1])
    assert found.num_small_files == MAX_SMALL_FILES
    assert found.small_file_s == pytest.approx(2.1)


def test_what_is_written_is_read_back(tmp_path):
    """All of it, by each writer its own file."""
    (found,) = meter(tmp_path, SteadyFiles(), max_bytes=6 * MIB).measure([3])
    assert (found.num_writers, found.num_bytes, found.read_bytes) == (3, 6 * MIB, 6 * MIB)


def test_rounds_share_the_size(tmp_path):
    """Two rounds of 4 MiB each, and never more than one round's files at a time."""
    found = meter(tmp_path, SteadyFiles(), max_bytes=8 * MIB).measure([1, 2])
    assert [measured.num_bytes for measured in found] == [4 * MIB, 4 * MIB]
    assert list(tmp_path.iterdir()) == []


def test_time_ends_the_writing(tmp_path):
    """A slow storage gets 60 % of the time for writes, however much is left of the size."""
    (found,) = meter(tmp_path, SteadyFiles(write_s=1.0), max_bytes=100 * MIB, duration_s=10).measure([1])
    assert found.num_bytes == 6 * MIB
    assert found.num_small_files == 1


def test_each_window_is_pushed_out_and_the_end_is_synced(tmp_path):
    """As the agent's writer does it: 16 MiB windows, and a sync before the file is closed."""
    files = SteadyFiles()
    meter(tmp_path, files, max_bytes=40 * MIB).measure([1])
    first_close = files.done.index("close")
    assert files.done[:first_close].count("push_out") == 2
    assert files.done[first_close - 1] == "sync"
    assert files.done[15:18] == ["write", "push_out", "write"]


def test_nothing_can_be_compressed_or_found_twice(tmp_path):
    """Storage that is clever about zeros and repeats must not look fast."""
    files = SteadyFiles()
    meter(tmp_path, files, max_bytes=8 * MIB).measure([2])
    written = b"".join(piece for piece in files.data if len(piece) == MIB)
    assert len(zlib.compress(written, 1)) > 0.99 * len(written)
    blocks = [written[at : at + 4096] for at in range(0, len(written), 4096)]
    assert len(set(blocks)) == len(blocks)


def test_a_storage_that_others_fill_is_left_in_time(tmp_path):
    """It was checked before; once a second it is looked at again."""
    files = SteadyFiles(write_s=0.1, free_bytes=63 * MIB)
    with pytest.raises(ProbeFailed, match=r"only 66\.1 MB are left free"):
        meter(tmp_path, files, max_bytes=64 * MIB, duration_s=100).measure([1])
    assert len(files.data) == 16  # a window, which took more than a second


def test_a_signal_ends_it_at_the_next_chunk(tmp_path):
    """No result, and no further bytes."""
    stop = threading.Event()
    files = SteadyFiles()
    write = files.write

    def then_stop(descriptor, data):
        stop.set()
        return write(descriptor, data)

    files.write = then_stop
    with pytest.raises(Stopped):
        meter(tmp_path, files, stop=stop).measure([1])
    assert len(files.data) == 1


def test_a_storage_that_hangs_is_given_up(tmp_path):
    """The threads that hang in it cannot be ended; the probe can."""
    files = HangingFiles()
    try:
        with pytest.raises(ProbeFailed, match="it hangs"):
            meter(tmp_path, files, watch=lambda _what, _share: files.clock.advance(PATIENCE_S / 3)).measure(
                [2]
            )
    finally:
        files.release.set()


def test_a_signal_does_not_wait_for_a_storage_that_hangs(tmp_path):
    """Ten seconds, then it leaves without its writers."""
    files, stop = HangingFiles(), threading.Event()
    stop.set()
    try:
        with pytest.raises(Stopped):
            meter(tmp_path, files, stop=stop, watch=lambda _what, _share: files.clock.advance(6)).measure([1])
    finally:
        files.release.set()


def test_one_failure_ends_all_writers(tmp_path):
    """Nobody writes on after one has failed: 100 chunks are left to each of the others."""
    files, failed = SteadyFiles(), threading.Event()
    write = files.write

    def first_fails(descriptor, data):
        if files.data:
            failed.wait(30)
            return write(descriptor, data)
        files.data.append(b"")
        failed.set()
        raise OSError(28, os.strerror(28))

    files.write = first_fails
    with pytest.raises(ProbeFailed, match="no space is left"):
        meter(tmp_path, files, max_bytes=400 * MIB, duration_s=1e6).measure([4])
    assert len(files.data) < 100


def test_progress_is_told(tmp_path):
    """What goes on, and the share of it."""
    told = []
    files = SteadyFiles(ManualClock())
    meter(tmp_path, files, max_bytes=64 * MIB, watch=lambda what, share: told.append((what, share))).measure(
        [2]
    )
    assert {what for what, _ in told} <= {"2 writers: write", "2 writers: small files", "2 writers: read"}
    assert all(0 <= share <= 1 for _, share in told)
