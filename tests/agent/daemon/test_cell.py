"""The cell that steers a writer in another process: whole records, one save, and the end of orphans."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from rampmeter.core.clock import ManualClock
from rampmeter.core.errors import LeaseLost
from rampmeter.daemon.cell import _BODY, Cell, CellReader, Steering, start_of
from rampmeter.daemon.records import new_memory
from rampmeter.throttle import Throttle
from support.waiting import wait_for

MINE = Steering.of_this_process(5)


@pytest.fixture
def memory() -> Iterator[int]:
    descriptor = new_memory()
    yield descriptor
    os.close(descriptor)


def reader(memory: int, number: int = 5) -> tuple[CellReader, Throttle]:
    throttle = Throttle(clock=ManualClock())
    return CellReader(Cell(memory), number, throttle), throttle


@pytest.mark.parametrize(
    "said",
    [
        MINE,
        replace(MINE, bytes_per_s=None, until_s=None),
        replace(MINE, bytes_per_s=10**15, until_s=12.5, abort_reason="rank_failed", number=2**40),
        replace(MINE, word=7),
    ],
)
def test_what_was_written_is_read(memory: int, said: Steering) -> None:
    """Also after many writes, and by another mapping."""
    writer = Cell(memory)
    assert Cell(memory).read() is None
    for rate in range(5):
        writer.write(replace(MINE, bytes_per_s=rate))
    writer.write(said)
    assert Cell(memory).read() == said


def test_half_a_record_is_none(memory: int) -> None:
    """A trainer that was killed while it wrote leaves its last whole word standing."""
    writer = Cell(memory)
    writer.write(replace(MINE, bytes_per_s=1))
    writer.write(replace(MINE, bytes_per_s=2))
    record_bytes = 8 + _BODY.size + 4
    newest = os.pread(memory, record_bytes, 0)
    for num_bytes in range(1, record_bytes):
        os.pwrite(memory, bytes(b ^ 0x55 for b in newest[:num_bytes]) + newest[num_bytes:], 0)
        assert Cell(memory).read() == replace(MINE, bytes_per_s=1)
    os.pwrite(memory, newest, 0)
    assert Cell(memory).read() == replace(MINE, bytes_per_s=2)


def test_the_throttle_follows(memory: int) -> None:
    """Rate and deadline are carried over; a lapsed one pauses the writer, as everywhere."""
    writer = Cell(memory)
    follower, throttle = reader(memory)
    writer.write(replace(MINE, bytes_per_s=4_000_000, until_s=2000.0))
    follower.look(1000.0)
    assert throttle.chunk_bytes() == 1_000_000
    writer.write(replace(MINE, bytes_per_s=0))
    follower.look(1000.0)
    assert throttle.chunk_bytes() == 64 * 1024


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (replace(MINE, number=6, bytes_per_s=9), "superseded"),
        (replace(MINE, abort_reason="rank_failed", bytes_per_s=9), "rank_failed"),
    ],
)
def test_a_save_that_is_none_any_more_stops(memory: int, said: Steering, reason: str) -> None:
    """An abort, or a cell that has gone on to another save: a stale flag is never taken for a new one."""
    Cell(memory).write(said)
    follower, throttle = reader(memory)
    with pytest.raises(LeaseLost, match=reason):
        follower.look(1000.0)
    assert throttle.abort_reason == reason


def ended_process() -> Steering:
    """Steering by a trainer that has been killed."""
    trainer = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    start = start_of(trainer.pid)
    assert start is not None
    trainer.send_signal(signal.SIGKILL)
    wait_for(lambda: start_of(trainer.pid) is None, what="the trainer to be a zombie")
    steering = Steering(number=5, trainer_pid=trainer.pid, trainer_start=start)
    trainer.wait()
    return steering


def test_an_orphan_finishes_while_its_lease_lives(memory: int) -> None:
    """And stops itself when the lease lapses; with a rate of 0 nobody would ever raise it, so it stops at once."""
    orphan = replace(ended_process(), bytes_per_s=1000, until_s=50.0)
    writer = Cell(memory)
    writer.write(orphan)
    follower, throttle = reader(memory)
    follower.look(10.0)
    follower.look(49.9)
    assert throttle.abort_reason is None
    with pytest.raises(LeaseLost, match="lease_lost"):
        follower.look(50.0)
    paused, _ = reader(memory)
    writer.write(replace(orphan, bytes_per_s=0))
    with pytest.raises(LeaseLost):
        paused.look(10.0)


def test_a_pid_alone_is_not_a_trainer() -> None:
    """The same number with another start is another process."""
    assert MINE.trainer_lives
    assert not replace(MINE, trainer_start=MINE.trainer_start + 1).trainer_lives


def _write_for_ever(memory: int) -> None:
    cell = Cell(memory)
    number = 0
    while True:
        number += 1
        cell.write(
            replace(MINE, number=number, bytes_per_s=number, until_s=float(number), trainer_pid=number)
        )


def test_a_reader_never_sees_a_mixture(memory: int) -> None:
    """Another process writes as fast as it can; every record that is read is one that was written."""
    Cell(memory)
    writer = multiprocessing.get_context("fork").Process(target=_write_for_ever, args=(memory,))
    writer.start()
    try:
        cell, seen = Cell(memory), set()
        wait_for(lambda: cell.read() is not None, what="the first record")
        for _ in range(20_000):
            record = cell.read()
            if record is not None:  # both records may be half written when the writer is that fast
                assert record.bytes_per_s == record.number == record.until_s == record.trainer_pid
                seen.add(record.number)
        assert len(seen) > 1
    finally:
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
