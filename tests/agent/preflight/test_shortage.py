"""What a save takes against what is left: the first thing that lacks is named, what is unknown lacks not."""

from dataclasses import replace
from pathlib import Path

import pytest

from rampmeter.core.messages import FailReason
from rampmeter.preflight.host import Room
from rampmeter.preflight.shortage import Need, shortage

GB = 10**9
ROOT = Path("/ckpt/run7")
PLENTY = Room(free_bytes=100 * GB, free_inodes=10**6, memory_bytes=100 * GB, free_descriptors=1000)
NEED = Need(num_bytes=10 * GB, staged_bytes=10 * GB)


def test_enough_of_everything_is_no_shortage() -> None:
    """Nothing is said."""
    assert shortage(PLENTY, NEED, ROOT) is None


@pytest.mark.parametrize(
    ("left", "reason", "words"),
    [
        ({"free_bytes": 10 * GB - 1}, FailReason.ENOSPC, "10 GB left for a checkpoint of 10 GB: free space"),
        ({"free_inodes": 7}, FailReason.ENOSPC, "room for 7 more files"),
        ({"memory_bytes": 11 * GB - 1}, FailReason.ENOMEM, "the copy of the state takes 11 GB"),
        ({"free_descriptors": 31}, FailReason.EMFILE, "raise `ulimit -n`"),
    ],
)
def test_what_lacks_by_one_is_named(left: dict[str, int], reason: FailReason, words: str) -> None:
    """One byte, file or descriptor too few, with what to do; one more is enough."""
    found = shortage(replace(PLENTY, **left), NEED, ROOT)
    assert found is not None
    assert (found.reason, words in found.detail) == (reason, True), found.detail
    enough = {name: value + 1 for name, value in left.items()}
    assert shortage(replace(PLENTY, **enough), NEED, ROOT) is None


@pytest.mark.parametrize("name", ["free_bytes", "free_inodes", "memory_bytes", "free_descriptors"])
def test_what_is_unknown_forbids_nothing(name: str) -> None:
    """A file system that does not count its inodes, a kernel that does not tell its memory."""
    assert shortage(replace(PLENTY, **{name: None}), NEED, ROOT) is None


def test_buffers_that_exist_need_no_memory() -> None:
    """Only the first copy of the state takes more than there is."""
    assert shortage(replace(PLENTY, memory_bytes=0), replace(NEED, staged_bytes=0), ROOT) is None


def test_a_full_disk_is_one_whatever_the_size() -> None:
    """A save of unknown size needs at least one byte."""
    unknown = Need(num_bytes=None, staged_bytes=0)
    assert shortage(replace(PLENTY, free_bytes=1), unknown, ROOT) is None
    found = shortage(replace(PLENTY, free_bytes=0), unknown, ROOT)
    assert found is not None
    assert "0 B left for a checkpoint: free space" in found.detail
