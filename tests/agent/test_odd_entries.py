"""What is odd about one entry of a root stops nothing that is done with the others, and can hold nobody up."""

import logging
import os
from pathlib import Path

import pytest

from rampmeter.checkpoints.survey import Condition, survey
from rampmeter.core.errors import ConfigError, CorruptCheckpoint
from rampmeter.files import NoPlainFile, read_small
from rampmeter.layout import MANIFEST_NAME, Root, StepName
from rampmeter.manifest import read_manifest
from rampmeter.marks import Mark, note_proven, put_mark, take_mark
from rampmeter.retention import Keep, prune, read_keep, sweep
from rampmeter.rollback import left_behind
from support.roots import change_manifest, nothing, put_commit, put_leftover

ONLY_ONE = Keep(keep=1, keep_days=0)
ODD = StepName(step=99, attempt=1, nonce="deadbeef")


def odd_directory(root: Root) -> None:
    (root.directory(ODD) / MANIFEST_NAME).mkdir(parents=True)


def odd_fifo(root: Root) -> None:
    root.directory(ODD).mkdir()
    os.mkfifo(root.directory(ODD) / MANIFEST_NAME)


def fifo(root: Root) -> None:
    os.mkfifo(root.directory(ODD))


def plain_file(root: Root) -> None:
    root.directory(ODD).touch()


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may look into the odd one."""
    stat = Path.stat

    def look(self: Path, **how: bool) -> os.stat_result:
        if self.parent.name == str(ODD):
            raise PermissionError(13, "Permission denied", str(self))
        return stat(self, **how)

    monkeypatch.setattr(Path, "stat", look)


@pytest.mark.parametrize("make_odd", [odd_directory, odd_fifo, fifo, plain_file])
def test_one_odd_entry_stops_neither_retention_nor_sweep(root: Root, make_odd, caplog) -> None:
    """The commits and leftovers beside it go as ever, and it is told of once."""
    names = [put_commit(root, step) for step in (1, 2, 3)]
    make_odd(root)
    leftover = put_leftover(root, 50, 1)
    root.claim_attempt()
    for _ in range(3):
        sweep(root, 2, nothing)
        prune(root, ONLY_ONE, nothing)
    assert not root.directory(leftover).exists()
    assert [name for name in names if root.directory(name).exists()] == [names[-1]]
    told = [line for line in caplog.messages if str(ODD) in line]
    assert len(set(told)) == len(told) >= 1
    assert {item.condition for item in survey(root).found if item.name == names[-1]} == {Condition.WHOLE}


def test_a_directory_of_somebody_else_stops_nothing(root: Root, refused: None, caplog) -> None:
    """What may not be looked into is passed over, by the pointer too; alone in a root it is no empty root."""
    root.directory(ODD).mkdir(parents=True)
    with pytest.raises(PermissionError):
        root.committed_steps()
    names = [put_commit(root, step) for step in (1, 2)]
    assert root.read_latest() == names[-1]
    assert prune(root, ONLY_ONE, nothing) == names[:1]
    leftover = put_leftover(root, 50, 1)
    assert sweep(root, 2, nothing) == [leftover]
    assert sum(str(ODD) in line for line in caplog.messages) == 1


def test_a_fifo_is_never_waited_for(tmp_path: Path) -> None:
    """Whoever reads a small file gets an error that names what stands there instead."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "directory").mkdir()
    for name in ("fifo", "directory"):
        with pytest.raises(NoPlainFile, match=name):
            read_small(tmp_path / name)


def test_each_small_file_may_be_a_fifo(root: Root) -> None:
    """Identity and retention's record are refused by name; plan, pointer, claim and choice count as not there."""
    root.ensure_job_uid()
    (root.path / "JOB_UID").unlink()
    (root.path / "attempts").mkdir()
    for name in ("JOB_UID", "LATEST", "retention.json", "attempts/00001", "attempts/00001.began-from"):
        os.mkfifo(root.path / name)
    with pytest.raises(ConfigError, match="JOB_UID is no plain file"):
        root.ensure_job_uid()
    with pytest.raises(ConfigError, match=r"retention\.json"):
        read_keep(root)
    claim = root.newest_claim()
    assert claim is not None
    assert (root.read_latest(), claim.nonce, left_behind(root)) == (None, "", {})
    assert survey(root).job_uid is None


@pytest.mark.parametrize(
    "changes",
    [{"block_bytes": 0}, {"block_bytes": -5}, {"world_size": 0}, {"total_bytes": -1}, {"files": "twice"}],
)
def test_a_manifest_without_sense_is_damaged(root: Root, changes) -> None:
    """Its digest fits, and no reader could follow it: the error names the field."""
    name = put_commit(root, 1)
    if changes == {"files": "twice"}:
        files = read_manifest(root.directory(name)).files
        changes = {"files": (*files, files[0])}
    change_manifest(root, name, **changes)
    with pytest.raises(CorruptCheckpoint, match=next(iter(changes))):
        read_manifest(root.directory(name))


def test_what_is_linked_to_is_not_written(root: Root, tmp_path: Path) -> None:
    """Neither a proof nor a pin goes through a link, and none is taken away."""
    name = put_commit(root, 1)
    moved = root.directory(name).rename(tmp_path / "moved")
    root.directory(name).symlink_to(moved)
    before = set(moved.iterdir())
    note_proven(root.directory(name), whole=True)
    with pytest.raises(OSError, match="symbolic link"):
        put_mark(root.directory(name), Mark.PINNED)
    put_mark(moved, Mark.PROVEN)
    with pytest.raises(OSError, match="symbolic link"):
        take_mark(root.directory(name), Mark.PROVEN)
    assert set(moved.iterdir()) == before | {moved / Mark.PROVEN}


def test_lost_and_found_is_nobodys_checkpoint(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no name of a checkpoint and cannot be looked into is passed over."""
    (root.path / "lost+found").mkdir(parents=True)
    (root.path / "checkpoint-100").mkdir()
    iterdir = Path.iterdir

    def look(self: Path):
        if self.name == "lost+found":
            raise PermissionError(13, "Permission denied", str(self))
        return iterdir(self)

    monkeypatch.setattr(Path, "iterdir", look)
    assert root.foreign_checkpoints() == ["checkpoint-100"]


def test_the_oddity_of_one_root_is_told_once(root: Root, caplog) -> None:
    """Another reason is told as well."""
    with caplog.at_level(logging.WARNING):
        for why in ("torn", "torn", "closed"):
            root.odd.tell(ODD, why)
    assert [line.split(": ")[1] for line in caplog.messages] == ["torn", "closed"]
