"""Savers that have their saves written by a process: as from a thread, report and remains and all."""

import logging
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import rampmeter
from rampmeter.core.errors import CommitError, ConfigError
from rampmeter.core.messages import FailReason, Fence
from rampmeter.daemon import guardian as guardian_module
from rampmeter.daemon import route as route_module
from rampmeter.daemon.cell import Cell
from rampmeter.daemon.guardian import Guardian, LostAtCommit
from rampmeter.daemon.hired import WriterLost
from rampmeter.daemon.mode import MOST_IN_A_THREAD, Mode
from rampmeter.daemon.records import new_memory
from rampmeter.daemon.route import ProcessRoute
from rampmeter.daemon.tidings import Stage, Tidings, TidingsCell
from rampmeter.events import SaveEnded
from rampmeter.layout import Root
from rampmeter.manifest import read_manifest
from rampmeter.restore import restore
from rampmeter.throttle import Throttle
from support.hired import CLOCK, Desk
from support.processes import is_running
from support.waiting import wait_for

LIMIT_S = 200.0
MIB = 1024 * 1024
BOOKKEEPING = {"JOB_UID", "attempts", "LATEST"}
MANY = {f"t{i}": torch.full((5,), float(i)) for i in range(MOST_IN_A_THREAD + 1)}


def writer_of(saver: Any) -> int:
    pid: int | None = saver._route._guardian.pid
    assert pid is not None
    return pid


def in_a_thread(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "in a thread of training" in r.getMessage()]


def test_the_life_of_a_saver(
    root: Root, make_saver: Any, make_run: Any, save: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It commits as a thread does; a failed save leaves nothing; two lost writers, one warning, then threads."""
    run, saver = make_run(), make_saver(mode=Mode.PROCESS, config={"lr": 1})
    run.train(2)
    assert saver.warm_up(run.state) > 0.0
    assert saver.has_buffers
    first = save(saver, 1, run.state, lease=Fence(epoch=3, counter=4))
    assert (first.committed, first.reason, first.step) == (True, None, 1)
    assert 0 < first.stage_s <= first.stall_s <= first.lead_s <= first.write_s
    manifest = read_manifest(root.path / first.directory)
    assert (manifest.step, manifest.config, manifest.extras.data_position) == (1, {"lr": 1}, True)
    assert (manifest.timings.stall_s, manifest.timings.stage_s) == (first.stall_s, first.stage_s)
    assert manifest.lease is not None
    assert (manifest.lease.fence_counter, first.num_bytes) == (4, manifest.total_bytes)

    nan = save(saver, 2, {"t": torch.tensor(float("nan"))})
    assert (nan.reason, nan.num_bytes) == ("not_finite", 0)
    for step in (3, 5):
        throttle = Throttle()
        ready = threading.Event()
        future = saver.begin(step, run.state, throttle, on_first_byte=lambda _bytes: ready.set())  # noqa: B023
        assert ready.wait(LIMIT_S)
        assert saver.begin(step, run.state, Throttle()).result().reason == "in_flight"
        os.kill(writer_of(saver), signal.SIGKILL)
        assert future.result(LIMIT_S).reason == "writer_lost"
        assert save(saver, step + 1, run.state).committed
    names = {path.name for path in root.path.iterdir()} - BOOKKEEPING
    assert names == {str(name) for name in root.committed_steps()}
    assert [name.step for name in root.committed_steps()] == [6, 4, 1]
    assert read_manifest(root.directory(root.committed_steps()[0])).parent == str(root.committed_steps()[1])
    assert (saver._route._guardian.pid, saver._route._arena.descriptor) == (None, None)
    assert len(in_a_thread(caplog)) == 1
    assert restore(root, run.state).step == 6  # type: ignore[union-attr]


def test_auto_counts_tensors(make_saver: Any, save: Any) -> None:
    """Few go by a thread, and no process is started for them; many go by a process. One of both holds buffers."""
    saver = make_saver()
    few = dict(list(MANY.items())[:MOST_IN_A_THREAD])
    saver.warm_up(few)
    assert save(saver, 1, few).committed
    guardian = saver._route._guardian
    assert (guardian.pid, guardian._starting) == (None, None)
    assert (saver._stager.last_stage_s > 0.0, saver._route._arena.descriptor) == (True, None)
    assert save(saver, 2, MANY).committed
    assert (saver._stager.last_stage_s, saver._route._arena.descriptor is None) == (0.0, False)
    writer = writer_of(saver)
    throttle = Throttle()
    future = saver.begin(3, MANY, throttle)
    assert not saver.close(limit_s=0.1)
    assert future.result(LIMIT_S).reason == "closing"
    assert not is_running(writer)


class ScriptsOwn(torch.distributed.checkpoint.FileSystemWriter):
    """A writer that stands in the training script."""

    __module__ = "__main__"


@pytest.mark.parametrize(
    ("options", "state", "what"),
    [
        ({"writer_class": ScriptsOwn}, MANY, "ScriptsOwn is defined in the training script"),
        ({}, {**MANY, "odd": torch.eye(3).to_sparse()}, "sparse"),
    ],
)
def test_what_cannot_go_by_a_process_goes_by_a_thread(
    options: dict[str, Any], state: dict[str, Any], what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning names the obstacle, however many saves there are; no wish makes it go away."""
    route = ProcessRoute(Mode.PROCESS, **({"writer_class": None, "num_ranks": 1, "clock": CLOCK} | options))
    with caplog.at_level(logging.WARNING, logger="rampmeter"):
        assert not route.is_for(state)
        assert not route.is_for(state)
    (message,) = in_a_thread(caplog)
    assert what in message
    assert not ProcessRoute(Mode.THREAD, writer_class=None, num_ranks=1, clock=CLOCK).is_for(MANY)


# -- lost at the last word -------------------------------------------------------------------------------------


class Dying:
    """A writer that tells a stage and is gone."""

    pid = 0
    is_alive = True
    stage = Stage.WRITING

    def __init__(self) -> None:
        memory = [new_memory(), new_memory()]
        self.steering, self.tidings = Cell(memory[0]), TidingsCell(memory[1])
        for descriptor in memory:
            os.close(descriptor)

    def has_started(self, _limit_s: float) -> bool:
        return True

    def take(self, order: Any, _placed: Any, _arena: Any) -> None:
        self.tidings.write(Tidings(number=order.number, stage=self.stage))

    def outcome(self, _limit_s: float) -> None:
        raise WriterLost("has ended (SIGKILL)")

    def kill(self) -> None:
        pass

    def end(self, _limit_s: float) -> None:
        pass


@pytest.mark.parametrize("stage", [Stage.WRITING, Stage.COMMITTING])
def test_only_a_writer_that_was_committing_may_have_committed(
    root: Root, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is asked only then: it may be what hangs."""
    monkeypatch.setattr(Dying, "stage", stage)
    guardian = Guardian(CLOCK, Dying)  # type: ignore[arg-type]
    error = Desk(root, guardian).begin(1, {"t": torch.ones(2)}).exception(LIMIT_S)
    assert isinstance(error, LostAtCommit) is (stage is Stage.COMMITTING)
    assert isinstance(error, CommitError)
    assert error.reason == "writer_lost"
    guardian.close()


@pytest.mark.parametrize("is_committed", [True, False])
def test_what_was_committed_stays_so(
    root: Root, make_saver: Any, save: Any, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    """A writer that is killed right after the commit has made a checkpoint; it is never swept as a failed save."""
    saver = make_saver(mode=Mode.PROCESS)
    kept = route_module.Guardian.save

    def lose(self: Guardian, *args: Any, **more: Any) -> None:
        if is_committed:
            kept(self, *args, **more)
        raise LostAtCommit("killed", reason=FailReason.WRITER_LOST)

    monkeypatch.setattr(guardian_module.Guardian, "save", lose)
    report = save(saver, 1, {"t": torch.ones(2)})
    assert (report.committed, report.reason) == ((True, None) if is_committed else (False, "writer_lost"))
    assert [name.step for name in root.committed_steps()] == ([1] if is_committed else [])


# -- as a training script has it -------------------------------------------------------------------------------


def test_a_training_run_with_a_writer_process(tmp_path: Path) -> None:
    """The option reaches the saver; saves go on beside training; nothing is left when the loop has ended."""
    ended: list[SaveEnded] = []

    def note(event: Any) -> None:
        if isinstance(event, SaveEnded):
            ended.append(event)

    state = {"t": torch.zeros(1000), "step": 0}
    with rampmeter.Checkpointer(tmp_path, mode="process", interval_max_s=0.01, seed=1, on_event=note) as ckpt:
        assert ckpt.restore(state) is None
        step = 0
        while len(ended) < 2:
            CLOCK.sleep(0.001)
            step += 1
            state["t"].fill_(step)  # type: ignore[attr-defined]
            state["step"] = step
            ckpt.step(step, state)
        writer = writer_of(ckpt._saver)
    assert {event.reason for event in ended} == {None}
    wait_for(lambda: not is_running(writer), what="the writer's end", limit_s=1.0)
    newest = restore(Root(tmp_path), state)
    assert newest is not None
    assert state["step"] == newest.step
    assert set(state["t"].tolist()) == {float(newest.step)}  # type: ignore[attr-defined]


def test_another_mode_is_refused_at_the_start(tmp_path: Path) -> None:
    """By name, before anything is touched."""
    with pytest.raises(ConfigError, match="mode is 'fork'"):
        rampmeter.Checkpointer(tmp_path / "root", mode="fork")
    assert not (tmp_path / "root").exists()
