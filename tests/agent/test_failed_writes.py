"""Writes that fail where nobody looks: in a further thread, at the sync, at the close, before the first byte."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter

from rampmeter import aftermath, files, saving
from rampmeter.core.messages import FailReason
from rampmeter.layout import Root
from rampmeter.report import SaveReport
from rampmeter.throttle import Throttle

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

LIMIT_S = 60.0
STATE = {f"t{i}": torch.ones(1000) for i in range(8)}


class TroubledFiles(FileSystem):
    """One of the files is in trouble at the moment that `where` names; `full` opens /dev/full in its place."""

    def __init__(self, where: str, shard: str) -> None:
        super().__init__()
        self._where, self._shard = where, shard

    @contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
        if mode != "wb" or not str(path).endswith(self._shard):
            with super().create_stream(path, mode) as stream:
                yield stream
            return
        if self._where == "open":
            raise OSError(errno.EDQUOT, "no quota for another file")
        if self._where == "full":
            path = Path("/dev/full")
        with super().create_stream(path, mode) as stream:
            yield stream
        if self._where == "close":
            raise OSError(errno.EIO, "said at the close")


def troubled(where: str, shard: str) -> type:
    """A writer of four threads, one file each."""

    class Writer(FileSystemWriter):
        def __init__(self, path: Any, **kwargs: Any) -> None:
            super().__init__(path, thread_count=4, **kwargs)
            self.fs = TroubledFiles(where, shard)

    return Writer


def _reason(root: Root, report: SaveReport) -> FailReason | None:
    """Why, of a save of which nothing stays."""
    assert not report.committed
    assert root.step_names() == []
    return report.reason


@pytest.mark.parametrize("shard", ["__0_0.distcp", "__0_1.distcp", "__0_3.distcp", ".metadata.tmp"])
@pytest.mark.parametrize(
    ("where", "reason"),
    [("open", FailReason.EDQUOT), ("full", FailReason.ENOSPC), ("close", FailReason.EIO)],
)
def test_the_reason_of_any_thread_is_told(
    root: Root, make_saver: Any, save: Any, where: str, reason: FailReason, shard: str
) -> None:
    """torch swallows what its further threads raise, and overwrites what its first one does."""
    found = save(make_saver(writer_class=troubled(where, shard)), 1, STATE)
    assert _reason(root, found) is reason


def test_a_sync_that_fails_in_a_further_thread_fails_the_save(
    root: Root, make_saver: Any, save: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes may be anywhere then: they are not believed to be on the disk."""
    fsync = os.fsync

    def fail(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().name == "__0_2.distcp":
            raise OSError(errno.EIO, "lost")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    assert _reason(root, save(make_saver(writer_class=troubled("", "none")), 1, STATE)) is FailReason.EIO


def test_a_thread_that_ends_without_a_word_is_found_out(root: Root, make_saver: Any, save: Any) -> None:
    """It has written nothing and raised nothing that anybody sees: its part of the plan has no result."""

    class Silent(troubled("", "none")):  # type: ignore[misc]
        def _write_data(self, planner: Any, file_queue: Any) -> Any:
            file_queue.get_nowait()
            return super()._write_data(planner, file_queue)

    assert _reason(root, save(make_saver(writer_class=Silent), 1, STATE)) is FailReason.SIZE_MISMATCH


def test_the_lease_does_not_wait_for_the_leftovers(
    root: Root, make_saver: Any, save: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Storage in trouble may take long to remove them: the end is told before."""
    may_remove, told, remove = threading.Event(), threading.Event(), files.remove_tree

    def slow(directory: Path) -> None:
        assert may_remove.wait(LIMIT_S)
        remove(directory)

    monkeypatch.setattr(aftermath, "remove_tree", slow)
    throttle = Throttle()
    throttle.set_rate(None)
    saver = make_saver(writer_class=troubled("full", "__0_0.distcp"))
    result = saver.begin(1, STATE, throttle, on_end=lambda _report: told.set())
    assert told.wait(LIMIT_S)
    assert not result.done()
    assert saver.in_flight
    may_remove.set()
    assert _reason(root, result.result(LIMIT_S)) is FailReason.ENOSPC


def test_leftovers_that_cannot_be_removed_go_when_the_next_save_has_ended(
    root: Root, make_saver: Any, save: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mount that has lost its server cannot remove anything; once it is back nothing stays."""
    remove = files.remove_tree

    def refuse(_directory: Path) -> None:
        raise OSError(errno.ENOTCONN, "gone")

    saver = make_saver(check_finite=True)
    monkeypatch.setattr(aftermath, "remove_tree", refuse)
    throttle = Throttle()
    failed = saver.begin(1, STATE, throttle)
    throttle.abort("revoked")
    assert failed.result(LIMIT_S).reason is FailReason.REVOKED
    assert [name.step for name in root.step_names()] == [1]
    monkeypatch.setattr(aftermath, "remove_tree", remove)
    assert save(saver, 2, STATE).committed
    assert [name.step for name in root.step_names()] == [2]


@pytest.mark.timeout(60)
def test_a_removal_that_hangs_does_not_hold_the_end_up(
    root: Root, make_saver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a save that has failed before its first byte: the end waits as long as for a write that hangs."""
    goes_on, hangs = threading.Event(), threading.Event()

    def hang(_directory: Path) -> None:
        hangs.set()
        goes_on.wait(LIMIT_S)

    monkeypatch.setattr(aftermath, "remove_tree", hang)
    monkeypatch.setattr(saving, "HUNG_S", 1.0)
    throttle = Throttle()
    throttle.set_rate(None)
    saver = make_saver(writer_class=troubled("open", "__0_0.distcp"))
    result = saver.begin(1, STATE, throttle)
    assert hangs.wait(LIMIT_S)
    assert not saver.close(3 * LIMIT_S)
    assert not result.done()
    goes_on.set()
    assert result.result(LIMIT_S).reason is FailReason.EDQUOT
