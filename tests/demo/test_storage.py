"""The emulated storage with real processes: its capacity, its slots."""

import json
import subprocess
import sys

import pytest

from rampmeter.core.clock import SystemClock
from rampmeter_coordinator.demo.storage import NUM_SLOTS, SharedStorage
from support.waiting import wait_for

CAPACITY = 20_000_000
_WRITER = """
import json, sys
from pathlib import Path
from rampmeter.core.clock import SystemClock
from rampmeter_coordinator.demo.storage import SharedStorage

clock, storage = SystemClock(), SharedStorage(Path(sys.argv[1]))
lane = storage.open_lane()
print("open", flush=True)
start_s, seconds = map(float, sys.stdin.readline().split())
clock.sleep(max(0.0, start_s - clock.now()))
chunks = []
while clock.now() < start_s + seconds:
    begin_s = clock.now()
    lane.transfer(200_000)
    chunks.append((begin_s, clock.now(), 200_000))
lane.close()
print(json.dumps(chunks))
"""


@pytest.fixture
def storage(tmp_path):
    made = SharedStorage.create(tmp_path / "storage", CAPACITY)
    yield made
    made.close()


@pytest.fixture
def start_writer(storage):
    """Starts a writer process that holds an open lane and waits for its start."""
    processes = []

    def start():
        process = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(storage.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        assert process.stdout.readline() == "open\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def _bytes_until(chunks, end_s):
    """Bytes served up to `end_s`; a chunk counts evenly over its time."""
    return sum(
        n * max(0.0, min(1.0, (end_s - begin) / (end - begin))) for begin, end, n in chunks if end > begin
    )


@pytest.mark.parametrize("num_writers", [1, 2, 6])
def test_all_writers_together_get_the_capacity(storage, start_writer, num_writers):
    """1, 2 and 6 processes that know nothing of each other share exactly one capacity."""
    writers = [start_writer() for _ in range(num_writers)]
    start_s = SystemClock().now() + 0.2
    for writer in writers:
        writer.stdin.write(f"{start_s} 2.0\n")
        writer.stdin.flush()
    chunks = [chunk for writer in writers for chunk in json.loads(writer.communicate()[0])]
    assert _bytes_until(chunks, start_s + 2.0) / 2.0 == pytest.approx(CAPACITY, rel=0.05)


def test_a_lone_writer_gets_everything(storage):
    """Nobody else is active, so a second of capacity takes a second."""
    clock, lane = SystemClock(), storage.open_lane()
    begin_s = clock.now()
    lane.transfer(CAPACITY // 4)
    assert clock.now() - begin_s == pytest.approx(0.25, rel=0.2)


def test_open_files_that_are_not_written_slow_nobody_down(storage):
    """A slot is taken by an open file, a share only by bytes that wait."""
    storage.open_lane()
    assert storage.num_active == 0


def test_the_slot_of_a_killed_writer_is_free_again(storage, start_writer):
    """SIGKILL leaves a slot behind; the next look frees it, also before the dead process is reaped."""
    writer = start_writer()
    assert storage.num_slots_taken == 1
    writer.kill()
    wait_for(lambda: storage.num_slots_taken == 0, what="the slot to be free")


def test_a_writer_killed_in_the_middle_takes_no_share(storage, start_writer):
    """What it was writing is gone with it: the others get its part."""
    writer = start_writer()
    writer.stdin.write(f"{SystemClock().now()} 60\n")
    writer.stdin.flush()
    wait_for(lambda: storage.num_active == 1, what="the writer to write")
    writer.kill()
    wait_for(lambda: storage.num_active == 0, what="its share to be free")


def test_more_writers_than_slots_are_refused(storage):
    """The sixty-fifth open file is an error, not a silent share."""
    for _ in range(NUM_SLOTS):
        storage.open_lane()
    with pytest.raises(OSError, match="no slot left"):
        storage.open_lane()


def test_a_closed_file_gives_its_slot_back(storage):
    """Closing and opening again never runs out of slots."""
    for _ in range(NUM_SLOTS + 1):
        storage.open_lane().close()
    assert storage.num_slots_taken == 0
