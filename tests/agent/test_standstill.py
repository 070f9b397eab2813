"""A flush in a thread that hangs in the storage: given up, told while it hangs, and not in the way of what follows."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter

from rampmeter.daemon import watch
from rampmeter.layout import METADATA_NAME, Root
from rampmeter.report import SaveReport
from rampmeter.throttle import Throttle
from support.waiting import wait_for

LIMIT_S = 30.0
STATE = {"table": torch.arange(1_000_000.0)}
LARGE_BYTES = 100_000


class Storage:
    """It hangs while `goes_on` is not set, in values or where metadata are opened; `hangs` says that it has begun."""

    def __init__(self) -> None:
        self.hangs, self.goes_on = threading.Event(), threading.Event()
        self.at_metadata = False

    def pass_by(self, *, is_metadata: bool) -> None:
        if is_metadata is self.at_metadata and not self.goes_on.is_set():
            self.hangs.set()
            self.goes_on.wait(LIMIT_S)


STORAGE = Storage()


class _Stream:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def write(self, data: Any) -> int:
        if memoryview(data).nbytes >= LARGE_BYTES:
            STORAGE.pass_by(is_metadata=False)
        written: int = self._inner.write(data)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _FileSystem(FileSystem):
    @contextlib.contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
        if Path(path).name.startswith(METADATA_NAME):
            STORAGE.pass_by(is_metadata=True)
        with super().create_stream(path, mode) as inner:
            yield _Stream(inner)


class HangsForAWhile(FileSystemWriter):
    """Until the storage goes on."""

    def __init__(self, path: str | Path, **options: Any) -> None:
        super().__init__(path, **options)
        self.fs = _FileSystem()


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    """It hangs, for as long as a writer may in tests, and lets go at the end."""
    monkeypatch.setattr(watch, "STANDSTILL_S", 1.0)
    STORAGE.hangs.clear()
    STORAGE.goes_on.clear()
    STORAGE.at_metadata = False
    yield STORAGE
    STORAGE.goes_on.set()


def unpaced() -> Throttle:
    throttle = Throttle()
    throttle.set_rate(None)
    return throttle


def test_a_flush_that_hangs_is_told_of_while_it_hangs(
    root: Root, make_saver: Any, save: Any, storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    """No lease waits for the storage. When that lets go, nothing more is written, nothing stays, the next one works."""
    told: list[SaveReport] = []
    saver = make_saver(writer_class=HangsForAWhile)
    throttle = unpaced()
    result = saver.begin(1, STATE, throttle, on_end=told.append)
    assert storage.hangs.wait(LIMIT_S)
    wait_for(lambda: told, what="the end of the save")
    assert (told[0].reason, told[0].committed, saver.in_flight) == ("no_progress", False, True)
    assert "wrote nothing for 1 s although it may: the storage hangs" in caplog.text
    assert save(saver, 2, STATE).reason == "in_flight"
    storage.goes_on.set()
    assert result.result(LIMIT_S).reason == "no_progress"
    assert len(told) == 1
    assert throttle.counters().done_bytes < 4 * LARGE_BYTES
    assert not root.step_names()
    assert save(saver, 3, STATE).committed


def test_what_was_told_as_failed_is_not_committed_later(
    root: Root, make_saver: Any, save: Any, storage: Storage
) -> None:
    """It hangs when all its bytes are there, and its lease is long another's when the storage lets go."""
    storage.at_metadata = True
    told: list[SaveReport] = []
    saver = make_saver(writer_class=HangsForAWhile)
    result = saver.begin(1, STATE, unpaced(), on_end=told.append)
    wait_for(lambda: told, what="the end of the save")
    assert told[0].reason == "no_progress"
    storage.goes_on.set()
    assert result.result(LIMIT_S).reason == "no_progress"
    assert (len(told), root.step_names()) == (1, [])
    assert save(saver, 2, STATE).committed


def test_a_flush_that_may_not_write_is_not_given_up(root: Root, make_saver: Any, storage: Storage) -> None:
    """However long it is paused."""
    storage.goes_on.set()
    throttle = Throttle()
    throttle.set_rate(1_000_000)
    result = make_saver(writer_class=HangsForAWhile).begin(1, STATE, throttle)
    wait_for(lambda: throttle.counters().busy_s > 0.0, what="the first bytes")
    throttle.set_rate(0)
    before_s = throttle.counters().throttled_s
    wait_for(lambda: throttle.counters().throttled_s > before_s + 2.5 * watch.STANDSTILL_S, what="a pause")
    assert not result.done()
    throttle.set_rate(None)
    assert result.result(LIMIT_S).committed
    assert len(root.committed_steps()) == 1
