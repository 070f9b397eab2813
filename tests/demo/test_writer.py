"""torch's writer on the emulated storage."""

import pytest
import torch
import torch.distributed.checkpoint as dcp

from rampmeter_coordinator.demo.storage import SharedStorage
from rampmeter_coordinator.demo.writer import bound_to

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

CAPACITY = 50_000_000


@pytest.fixture
def saved(tmp_path):
    """A state of 10 MB saved through the emulated storage: the directory and the chunks that were told."""
    storage = SharedStorage.create(tmp_path / "storage", CAPACITY)
    chunks = []
    writer_class = bound_to(storage, lambda begin_s, end_s, n: chunks.append((begin_s, end_s, n)))
    state = {"weights": torch.arange(2_500_000, dtype=torch.float32)}
    dcp.save(state, storage_writer=writer_class(tmp_path / "saved"), no_dist=True)
    return tmp_path / "saved", chunks, storage


def test_what_is_written_can_be_read(saved):
    """The files are torch's own, byte for byte."""
    state = {"weights": torch.zeros(2_500_000)}
    dcp.load(state, checkpoint_id=saved[0], no_dist=True)
    assert torch.equal(state["weights"], torch.arange(2_500_000, dtype=torch.float32))


def test_every_byte_is_told(saved):
    """The chunks add up to the files on disk."""
    directory, chunks, _ = saved
    assert sum(n for _, _, n in chunks) == sum(file.stat().st_size for file in directory.iterdir())


def test_a_write_takes_as_long_as_the_storage_says(saved):
    """10 MB at 50 MB/s take at least 0.2 s of storage time."""
    chunks = saved[1]
    assert sum(end_s - begin_s for begin_s, end_s, _ in chunks) >= 0.19


def test_slots_are_given_back(saved):
    """No file is open after the save."""
    assert saved[2].num_slots_taken == 0
