"""What reading a checkpoint has shown stays known: retention counts on it no more, and only storage lifts it."""

from typing import Any

import pytest
import torch

from rampmeter.core.errors import CorruptCheckpoint, DigestMismatch
from rampmeter.layout import MANIFEST_NAME, Root
from rampmeter.marks import Mark, damage_found, has_mark, note_damaged, note_proven, note_read_back
from rampmeter.restore import restore
from rampmeter.retention import Keep, Reason, prune, read_commits, why_kept
from support.roots import flip, nothing, put_commit, steps_in

MISMATCH = DigestMismatch("file __0_0.distcp does not match its digest (block 0)")


def test_a_finding_names_the_file_and_stands_until_storage_gives_it_back_whole(root: Root) -> None:
    """What was read from this host's memory neither lifts it nor proves anything."""
    directory = root.directory(put_commit(root, 1))
    note_proven(directory, whole=True)
    note_damaged(directory, MISMATCH)
    note_proven(directory, whole=True)
    assert "__0_0.distcp does not match its digest (block 0), found 20" in str(damage_found(directory))
    assert not has_mark(directory, Mark.PROVEN)
    note_read_back(directory)
    assert (damage_found(directory), has_mark(directory, Mark.PROVEN)) == (None, True)


def test_only_what_nobody_sees_without_reading_is_kept(root: Root) -> None:
    """A missing file may be back with the mount; what is being removed gets no new file."""
    names = [put_commit(root, step) for step in (1, 2)]
    note_damaged(root.directory(names[0]), CorruptCheckpoint("file __0_0.distcp is missing"))
    (root.directory(names[1]) / MANIFEST_NAME).rename(root.directory(names[1]) / "MANIFEST.deleting")
    note_damaged(root.directory(names[1]), MISMATCH)
    assert [damage_found(root.directory(name)) for name in names] == [None, None]


def test_a_mark_that_cannot_be_understood_is_a_finding_all_the_same(root: Root) -> None:
    """An empty file is what a crash leaves where there are no hard links."""
    directory = root.directory(put_commit(root, 1))
    (directory / Mark.DAMAGED).touch()
    assert damage_found(directory) == "found damaged when it was read"


def test_a_damaged_one_takes_no_place_of_a_whole_one(root: Root) -> None:
    """Of 1..5 with 5 and 3 damaged stay two whole ones, and the damaged one that is among the newest two."""
    names = {step: put_commit(root, step) for step in range(1, 6)}
    for step in (5, 3):
        note_damaged(root.directory(names[step]), MISMATCH)
    reasons = why_kept(read_commits(root, {}), Keep(keep=2, keep_days=1, milestone_steps=3))
    stay = {name.step: why for name, why in reasons.items() if why}
    assert stay == {
        5: [Reason.LAST],
        4: [Reason.LAST, Reason.DAILY, Reason.MILESTONE],
        2: [Reason.LAST],
    }
    prune(root, Keep(keep=2, keep_days=0), nothing)
    assert steps_in(root) == [5, 4, 2]


def test_damaged_ones_have_the_places_that_whole_ones_leave_free(root: Root) -> None:
    """However many were found: of 1..5 with 2, 3 and 4 damaged stay three, and not those besides."""
    names = {step: put_commit(root, step) for step in range(1, 6)}
    for step in (2, 3, 4):
        note_damaged(root.directory(names[step]), MISMATCH)
    reasons = why_kept(read_commits(root, {}), Keep(keep=3, keep_days=0))
    assert [name.step for name, why in reasons.items() if why] == [5, 4, 1]


@pytest.fixture
def two(root: Root, make_saver: Any, save: Any) -> Root:
    """Steps 1 and 2."""
    saver = make_saver()
    for step in (1, 2):
        assert save(saver, step, {"t": torch.full((2,), float(step))}).committed
    return root


def test_what_a_restore_finds_stays_known(two: Root) -> None:
    """It takes the one before."""
    directory = two.directory(two.committed_steps()[0])
    flip(directory / "__0_0.distcp")
    found = restore(two, {"t": torch.zeros(2)})
    assert found is not None
    assert found.step == 1
    assert "__0_0.distcp" in str(damage_found(directory))


def test_a_restore_believes_what_it_reads_and_not_the_mark(two: Root) -> None:
    """Storage was mended, or the finding was of another host: the newest that verifies is taken, and is not proven."""
    directory = two.directory(two.committed_steps()[0])
    note_damaged(directory, MISMATCH)
    found = restore(two, {"t": torch.zeros(2)})
    assert found is not None
    assert (found.step, has_mark(directory, Mark.PROVEN)) == (2, False)
