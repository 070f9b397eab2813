"""A trouble that lasts is told once, then ever more rarely with its count, and its end once."""

import errno
import logging

import pytest
import torch
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter

from rampmeter import aftermath
from rampmeter.core.messages import FailReason
from rampmeter.troubles import Failed, Troubles

STATE = {"t": torch.ones(10)}


@pytest.fixture(autouse=True)
def warnings(caplog):
    with caplog.at_level(logging.WARNING, logger="rampmeter"):
        yield


def steps_told(caplog) -> list[int]:
    return [int(said.split()[1]) for said in caplog.messages if "was not saved" in said]


def test_the_same_reason_is_told_at_growing_distances(caplog) -> None:
    """Whatever file it is about; with how often by now."""
    troubles = Troubles()
    for step in range(1, 21):
        troubles.failed(Failed(step=step, reason=FailReason.EROFS, said=f"no such luck in step-{step}"))
    assert steps_told(caplog) == [1, 2, 4, 8, 16]
    assert caplog.messages[0].startswith(
        "step 1 was not saved (erofs): no such luck in step-1; the file system is"
    )
    assert "(erofs, 16 times by now" in caplog.messages[-1]


def test_another_reason_is_told_at_once(caplog) -> None:
    """So is another fault of the state under the same word: it names another culprit."""
    troubles = Troubles()
    for step, (reason, said) in enumerate(
        [
            (FailReason.EIO, "a"),
            (FailReason.ENOSPC, "b"),
            (FailReason.BAD_STATE, "x.a is a lock"),
            (FailReason.BAD_STATE, "x.b is a lock"),
            (FailReason.BAD_STATE, "x.c is a lock"),
        ]
    ):
        troubles.failed(Failed(step=step, reason=reason, said=said))
    assert steps_told(caplog) == [0, 1, 2, 3, 4]


def test_the_end_is_told_once_to_whoever_heard_of_the_trouble(caplog) -> None:
    """With what it cost; the next trouble is told anew. Where there was none nothing is said."""
    troubles = Troubles()
    troubles.committed(1)
    for step in (2, 3, 4):
        troubles.failed(Failed(step=step, reason=FailReason.EIO, said="broken"))
    troubles.committed(5)
    troubles.committed(6)
    troubles.failed(Failed(step=7, reason=FailReason.EIO, said="broken"))
    assert steps_told(caplog) == [2, 3, 7]
    (end,) = [said for said in caplog.messages if "is saved" in said]
    assert end.startswith("step 5 is saved")
    assert "3 x eio" in end


class ReadOnly(FileSystem):
    """Becomes writable again when `healed`."""

    healed = False

    def mkdir(self, path):
        if not ReadOnly.healed:
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        super().mkdir(path)


class ReadOnlyWriter(FileSystemWriter):
    def __init__(self, path, **kwargs):
        super().__init__(path, **kwargs)
        self.fs = ReadOnly()


def test_a_mount_that_is_read_only_for_a_while_fills_no_log(make_saver, save, caplog, monkeypatch) -> None:
    """Five saves, three lines; one when they are made again."""
    monkeypatch.setattr(ReadOnly, "healed", False)
    saver = make_saver(writer_class=ReadOnlyWriter, mode="thread")
    for step in range(1, 6):
        assert save(saver, step, STATE).reason == "erofs"
    assert steps_told(caplog) == [1, 2, 4]
    ReadOnly.healed = True
    assert save(saver, 6, STATE).committed
    assert [said for said in caplog.messages if "no trouble any more" in said] == [
        "step 6 is saved: the saves before it that failed (5 x erofs) are no trouble any more"
    ]


def test_leftovers_that_cannot_be_removed_are_told_once_each(make_saver, save, caplog, monkeypatch) -> None:
    """Each save tries all of them again."""

    def refuse(_path):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(aftermath, "remove_tree", refuse)
    saver = make_saver(mode="thread")
    for step in (1, 2, 3):
        assert not save(saver, step, {"t": torch.tensor(float("nan"))}).committed
    assert len([said for said in caplog.messages if said.startswith("the leftovers of")]) == 3
