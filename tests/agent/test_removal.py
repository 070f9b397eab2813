"""Removal: whoever looks sees a whole checkpoint or none; a pin and a deletion that meet agree; anybody may finish."""

import itertools
import os
import threading
from pathlib import Path

import pytest

import rampmeter.removal as module
from rampmeter.core.clock import ManualClock, SystemClock
from rampmeter.layout import MANIFEST_NAME, Root
from rampmeter.marks import Mark, has_mark, put_mark
from rampmeter.removal import (
    DELETING_NAME,
    WITHDRAWN_NAME,
    Standing,
    pin,
    put_back,
    remove,
    remove_leftover,
    standing,
)
from support.roots import nothing, put_commit, put_leftover


@pytest.fixture
def directory(root: Root) -> Path:
    """Of a committed checkpoint."""
    return root.directory(put_commit(root, 1))


def _check_order(events: list[str]) -> None:
    token = events.index(f"rename {MANIFEST_NAME} {WITHDRAWN_NAME}")
    seal = events.index(f"rename {WITHDRAWN_NAME} {DELETING_NAME}")
    first_file = min(index for index, event in enumerate(events) if event.startswith("unlink"))
    assert token < events.index("sync") < seal < first_file
    assert events[first_file - 1] == "sync"
    assert events[-2:] == [f"unlink {DELETING_NAME}", "rmdir"]


def test_the_manifest_goes_first_and_durably(directory: Path, monkeypatch) -> None:
    """Manifest, sync, sync, files, and the token that says so last."""
    events: list[str] = []
    rename, unlink, rmdir, fsync = Path.rename, Path.unlink, Path.rmdir, os.fsync

    def note_rename(self: Path, target):
        events.append(f"rename {self.name} {Path(target).name}")
        return rename(self, target)

    def note_unlink(self: Path, missing_ok: bool = False):
        events.append(f"unlink {self.name}")
        unlink(self, missing_ok)

    def note_rmdir(self: Path):
        events.append("rmdir")
        rmdir(self)

    def note_sync(descriptor: int):
        events.append("sync")
        fsync(descriptor)

    monkeypatch.setattr(Path, "rename", note_rename)
    monkeypatch.setattr(Path, "unlink", note_unlink)
    monkeypatch.setattr(Path, "rmdir", note_rmdir)
    monkeypatch.setattr(os, "fsync", note_sync)
    assert remove(directory, nothing)
    assert not directory.exists()
    _check_order(events)


def test_a_removal_that_stops_anywhere_is_finished(root: Root) -> None:
    """Stopped before each of its files in turn, it leaves a half-removed one, and the next call ends it."""

    class Stop(Exception):
        pass

    def stop() -> None:
        raise Stop

    for step in range(6):
        directory = root.directory(put_commit(root, step))
        calls = itertools.count()
        with pytest.raises(Stop):
            remove(directory, lambda calls=calls, step=step: stop() if next(calls) == min(step, 3) else None)
        assert standing(directory) is Standing.DELETING
        assert remove(directory, nothing)
        assert not directory.exists()


def test_a_pinned_one_is_not_removed(directory: Path) -> None:
    """It stands as it stood, with its manifest."""
    put_mark(directory, Mark.PINNED)
    before = sorted(path.name for path in directory.iterdir())
    assert not remove(directory, nothing)
    assert sorted(path.name for path in directory.iterdir()) == before
    assert standing(directory) is Standing.COMMITTED


def test_a_pin_between_the_manifest_and_the_files_wins(directory: Path, monkeypatch) -> None:
    """The manifest is away for a moment; the pin that came in between brings it back."""
    sync = module.sync_directory
    pins = [directory]

    def pin_then_sync(where: Path) -> None:
        if pins:
            put_mark(pins.pop(), Mark.PINNED)
        sync(where)

    monkeypatch.setattr(module, "sync_directory", pin_then_sync)
    assert not remove(directory, nothing)
    assert standing(directory) is Standing.COMMITTED


def test_a_pin_after_the_seal_fails_and_says_so(directory: Path) -> None:
    """What can no longer be saved is not called pinned."""
    (directory / MANIFEST_NAME).rename(directory / DELETING_NAME)
    assert not pin(directory, SystemClock())
    assert not has_mark(directory, Mark.PINNED)


def test_a_pin_saves_what_a_killed_removal_had_withdrawn(directory: Path) -> None:
    """After two seconds nobody is believed to be about to answer."""
    (directory / MANIFEST_NAME).rename(directory / WITHDRAWN_NAME)
    assert pin(directory, ManualClock())
    assert standing(directory) is Standing.COMMITTED


def test_leftovers_are_not_pinned(root: Root) -> None:
    """What was never committed cannot be kept."""
    directory = root.directory(put_leftover(root, 1, 1))
    assert not pin(directory, SystemClock())
    assert not has_mark(directory, Mark.PINNED)


def test_a_removal_that_was_overtaken_does_not_seal(directory: Path, monkeypatch) -> None:
    """It woke up after a pin had put the manifest back: it must not go on."""

    def look_then_lose(where: Path, mark: Mark) -> bool:
        put_mark(where, mark)
        assert put_back(where)
        return False

    monkeypatch.setattr(module, "has_mark", look_then_lose)
    assert not remove(directory, nothing)
    assert standing(directory) is Standing.COMMITTED
    assert len(list(directory.glob("*.distcp"))) == 2


def test_a_leftover_that_was_committed_meanwhile_stays(directory: Path) -> None:
    """Also one whose token is just being moved."""
    assert not remove_leftover(directory, nothing)
    put_mark(directory, Mark.PINNED)
    (directory / MANIFEST_NAME).unlink()
    assert not remove_leftover(directory, nothing)
    assert directory.exists()


def test_a_link_is_not_followed(root: Root, directory: Path, tmp_path: Path) -> None:
    """A checkpoint that was moved to another disk and linked back is its owner's business."""
    moved = directory.rename(tmp_path / "moved")
    directory.symlink_to(moved)
    with pytest.raises(OSError, match="symbolic link"):
        remove(directory, nothing)
    assert standing(moved) is Standing.COMMITTED


def test_what_is_gone_already_is_no_error(directory: Path) -> None:
    """Two that remove one checkpoint both succeed."""
    assert remove(directory, nothing)
    assert remove(directory, nothing)


def test_network_leftovers_do_not_fail_a_deletion(directory: Path) -> None:
    """A `.nfs` file of a reader that still has a shard open stays for its owner; the checkpoint is gone."""
    stray = directory / ".nfs0001"
    stray.touch()
    assert remove(directory, nothing)
    assert [path.name for path in directory.iterdir()] == [".nfs0001"]


def test_a_writer_that_woke_up_does_not_leave_its_file(directory: Path, monkeypatch) -> None:
    """A file that appears while the others go, goes in a second pass; sub-directories go too."""
    late = [directory / "__9_0.distcp"]
    (directory / "more").mkdir()
    (directory / "more" / "file").touch()
    rmdir = Path.rmdir

    def race(self: Path) -> None:
        if late:
            late.pop().touch()
        rmdir(self)

    monkeypatch.setattr(Path, "rmdir", race)
    assert remove(directory, nothing)
    assert not directory.exists()


def test_pins_and_removals_at_once_always_agree(root: Root) -> None:
    """Whoever wins, a pin that was told to hold holds, and one that was told to fail leaves nothing half there."""
    for step in range(60):
        directory = root.directory(put_commit(root, step))
        start = threading.Barrier(3)
        answers: dict[str, bool] = {}

        def run(name, function, start=start, answers=answers):
            start.wait()
            try:
                answers[name] = function()
            except FileNotFoundError:
                answers[name] = False

        threads = [
            threading.Thread(target=run, args=("pin", lambda d=directory: pin(d, SystemClock()))),
            threading.Thread(target=run, args=("one", lambda d=directory: remove(d, nothing))),
            threading.Thread(target=run, args=("two", lambda d=directory: remove(d, nothing))),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if answers["pin"]:
            assert standing(directory) is Standing.COMMITTED
            assert len(list(directory.glob("*.distcp"))) == 2
        else:
            assert not directory.exists()
