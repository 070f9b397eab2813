"""Cases of storage that fails: the save is lost, its reason is told, training and the next save go on."""

import errno
import gc
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import rampmeter
from rampmeter.core.messages import FailReason
from rampmeter.daemon.mode import Mode
from rampmeter.events import Event, SaveEnded, SaveHeldBack, SaveStarted
from rampmeter.layout import Root
from rampmeter.report import SaveReport
from rampmeter.saving import Saver
from rampmeter.throttle import Throttle
from support.case_state import keep_newest, loaded
from support.flush_threads import wait_for_their_end
from support.small_disk import may_mount, small_disk

MIB = 1024 * 1024
OFTEN: dict[str, Any] = {"interval_max_s": 0.05, "seed": 1}
LIMIT_S = 60.0
STATE_BYTES = 64 * MIB


class Job:
    """A training loop without a coordinator, driven step by step."""

    def __init__(self, ckpt: rampmeter.Checkpointer, events: list[Event], num_values: int) -> None:
        self.ckpt, self.events, self.step = ckpt, events, 0
        self._state = {"table": torch.zeros(num_values)}

    def train_until(self, condition: Callable[[], object], limit_steps: int = 20_000) -> None:
        """Steps of a few milliseconds."""
        for _ in range(limit_steps):
            if condition():
                return
            self.step += 1
            self._state["table"].fill_(float(self.step))
            self.ckpt.step(self.step, self._state)
            threading.Event().wait(0.003)
        raise AssertionError(f"{limit_steps} steps were not enough; {self.events[-3:]}")

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in list(self.events) if isinstance(event, kind)]


def test_c55_a_failed_save_is_seen_and_the_next_ones_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EIO in the second of five: known at the next step, and retention does not miss the step that never was."""
    fsync, events = os.fsync, []

    def fail_second(descriptor: int) -> None:
        is_shard = Path(f"/proc/self/fd/{descriptor}").readlink().suffix == ".distcp"
        if is_shard and sum(isinstance(event, SaveStarted) for event in events) == 2:
            raise OSError(errno.EIO, "the disk")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_second)
    with rampmeter.Checkpointer(tmp_path, on_event=events.append, keep=2, **OFTEN) as ckpt:
        job = Job(ckpt, events, 1000)
        job.train_until(lambda: len(job.of(SaveEnded)) >= 2)
        assert ckpt.last_save is not None
        assert ckpt.last_save.reason is FailReason.EIO
        assert ckpt._started.num_failed == 1
        job.train_until(lambda: len(job.of(SaveEnded)) >= 5)
        assert ckpt._started.num_failed == 0, "they are counted in a row"
    reasons = [event.reason for event in job.of(SaveEnded)]
    assert reasons[:5] == [None, FailReason.EIO, None, None, None]
    found = loaded(Root(tmp_path))
    assert found is not None
    assert found.step == job.of(SaveEnded)[-1].step
    assert len(Root(tmp_path).step_names()) == 2


@pytest.mark.skipif(not may_mount(), reason="mounting a small file system needs root")
def test_c65_a_disk_that_cannot_hold_what_is_to_be_kept(tmp_path: Path) -> None:
    """Room for 2.5 checkpoints, 3 wanted: the third is not attempted and says why; with room saves go on."""
    size, events = 4 * MIB, []
    with small_disk(tmp_path / "disk", int(2.5 * size)) as disk:
        root = Root(disk / "root")
        with rampmeter.Checkpointer(root.path, on_event=events.append, keep=3, **OFTEN) as ckpt:
            job = Job(ckpt, events, size // 4)
            job.train_until(lambda: job.of(SaveHeldBack))
            assert job.of(SaveHeldBack)[0].reason is FailReason.ENOSPC
            assert {event.reason for event in job.of(SaveEnded)} == {None}
            assert len(root.step_names()) == 2
            good = loaded(root, size // 4)
            assert good is not None
            assert good.step == job.of(SaveEnded)[-1].step
            subprocess.run(["mount", "-o", f"remount,size={8 * size}", str(disk)], check=True)
            job.train_until(lambda: len(job.of(SaveEnded)) >= 3)
        assert len(root.step_names()) >= 3


def held_by(pid: int) -> tuple[int, int, int]:
    """Resident bytes, threads and open files of a process; without the thread of its last flush, which is ending."""
    process = Path(f"/proc/{pid}")
    pages = int((process / "statm").read_text().split()[1])
    names = [(thread / "comm").read_text().strip() for thread in (process / "task").iterdir()]
    num_threads = sum(not name.startswith("rampmeter-flush") for name in names)
    return pages * os.sysconf("SC_PAGE_SIZE"), num_threads, len(list((process / "fd").iterdir()))


@pytest.mark.parametrize("mode", [Mode.THREAD, Mode.PROCESS])
def test_c71_memory_threads_and_files_do_not_grow(root: Root, mode: Mode) -> None:
    """Sixty saves of 64 MiB: after the last not a state more than after the tenth, here and in the process beside."""
    state, found = {"table": torch.ones(STATE_BYTES // 4)}, []
    saver = Saver(root, root.claim_attempt(), job="case", mode=mode)
    for step in range(60):
        throttle = Throttle()
        throttle.set_rate(None)
        assert saver.begin(step, state, throttle).result(LIMIT_S).committed
        keep_newest(root, 1)
        if step in (9, 59):
            gc.collect()
            wait_for_their_end()
            writer = saver._route._guardian.pid
            assert (writer is not None) == (mode is Mode.PROCESS)
            found.append([held_by(pid) for pid in (os.getpid(), writer) if pid is not None])
    saver.close(LIMIT_S)
    for early, late in zip(*found, strict=True):
        assert late[0] <= early[0] + STATE_BYTES
        assert late[1] <= early[1], "threads"
        assert late[2] <= early[2], "files"


def test_c75_file_systems_with_habits_of_their_own(
    root: Root, save: Callable[..., SaveReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rename that is refused twice, and files that a server leaves: commit, discovery and deletion go on."""
    replace, refusals = Path.replace, []

    def refuse_twice(self: Path, target: Path) -> Path:
        if target.name == "LATEST" and len(refusals) < 2:
            refusals.append(target)
            raise PermissionError(errno.EACCES, "a reader has it open")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", refuse_twice)
    assert save(1).committed
    assert len(refusals) == 2
    latest = root.read_latest()
    assert latest is not None
    assert latest.step == 1
    (root.directory(latest) / ".nfs0001").touch()
    found = loaded(root)
    assert found is not None
    assert found.step == 1
    assert save(2).committed
    assert loaded(root) is not None  # proven, so that the one before is held by nothing
    keep_newest(root, 1)
    assert [name.step for name in root.step_names() if root.is_committed(name)] == [2]
