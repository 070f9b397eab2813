"""What becomes of a writer when its trainer is gone: it finishes what it may, and no process is left."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rampmeter.layout import Root
from support.processes import is_running
from support.trainers import Trainers
from support.waiting import wait_for

MIB = 1024 * 1024
GONE_S = 3.0
"""A look each second while idle, two seconds for the storage, and a machine that is busy with other tests."""


def killed(trainers: Trainers, limit_s: float = GONE_S, **job: Any) -> list[int]:
    """Kill a trainer, wait for its writer's end; the steps that are committed then."""
    shared_before = set(Path("/dev/shm").iterdir())
    trainer, writer = trainers.start(**job)
    os.kill(trainer, signal.SIGKILL)
    assert trainers.hears()["what"] == "over"
    wait_for(lambda: not is_running(writer), what="the writer's end", limit_s=limit_s)
    assert set(Path("/dev/shm").iterdir()) <= shared_before
    return [name.step for name in trainers.root.committed_steps()]


@pytest.mark.parametrize(
    ("job", "steps"),
    [
        ({"forks": True}, []),
        ({"rate": 0}, []),
        ({"rate": 2 * MIB, "until_bytes": MIB, "lease_s": 60.0}, [1]),
        ({"rate": MIB, "until_bytes": MIB, "lease_s": 2.5}, []),
    ],
    ids=["idle-with-a-fork", "armed", "lease-lives", "lease-lapses"],
)
def test_a_writer_whose_trainer_was_killed(trainers: Trainers, job: dict[str, Any], steps: list[int]) -> None:
    """It finishes and commits what its lease allows, stops where there is none, and is gone with all its memory."""
    assert killed(trainers, limit_s=GONE_S + 2.0, **job) == steps


def test_an_orphan_commits_nothing_into_a_newer_attempt(trainers: Trainers, tmp_path: Path) -> None:
    """All bytes are out when the successor claims the root: the claim fences the writer."""
    gate = tmp_path / "gate"
    trainer, writer = trainers.start(rate=None, gate=str(gate), until_bytes=4 * MIB)
    os.kill(trainer, signal.SIGKILL)
    assert trainers.hears()["what"] == "over"
    trainers.root.claim_attempt()
    assert is_running(writer)
    gate.unlink()
    wait_for(lambda: not is_running(writer), what="the writer's end", limit_s=GONE_S)
    assert trainers.root.committed_steps() == []


def test_an_orphan_that_hangs_in_the_storage_ends_itself(trainers: Trainers, tmp_path: Path) -> None:
    """Once its lease has lapsed there is nothing more to wait for."""
    gate = tmp_path / "gate"
    assert (
        killed(trainers, rate=None, gate=str(gate), until_bytes=4 * MIB, lease_s=1.0, limit_s=GONE_S + 2.0)
        == []
    )


def test_an_orphan_that_hangs_without_a_lease_ends_itself(trainers: Trainers) -> None:
    """Where no coordinator is its right to write has no end, and nobody else would end it."""
    assert killed(trainers, rate=None, hangs=True, limit_s=10.0) == []


def test_a_stopped_trainer_lets_nothing_out_after_its_lease(trainers: Trainers) -> None:
    """The deadline stands in the cell: the writer needs nobody to tell it."""
    trainer, writer = trainers.start(rate=MIB, until_bytes=MIB, lease_s=2.5)
    os.kill(trainer, signal.SIGSTOP)
    try:
        written = [trainers.written_bytes()]
        wait_for(lambda: _stands(trainers, written), what="the writer to pause", limit_s=5.0)
        assert written[-1] < 3.5 * MIB
        assert is_running(writer)
    finally:
        os.kill(trainer, signal.SIGKILL)
    assert trainers.hears()["what"] == "over"
    wait_for(lambda: not is_running(writer), what="the writer's end", limit_s=GONE_S)


def _stands(trainers: Trainers, written: list[int]) -> bool:
    written.append(trainers.written_bytes())
    return len(written) > 100 and written[-1] == written[-100]


@pytest.mark.parametrize("leaves", ["exit", "exception"])
def test_no_writer_outlives_a_script_that_ends(trainers: Trainers, leaves: str) -> None:
    """Without close(), in the middle of a slow save whose lease would live for a minute: gone within seconds."""
    _, writer = trainers.start(rate=64 * 1024, lease_s=60.0, leaves=leaves)
    assert trainers.hears()["what"] == "over"
    wait_for(lambda: not is_running(writer), what="the writer's end", limit_s=GONE_S)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_trainers_may_be_started_by_any_method(tmp_path: Path, method: str) -> None:
    """Also as processes that may have no children of multiprocessing's kind."""
    script = tmp_path / "train.py"
    script.write_text("""
import multiprocessing, sys
def train(root):
    import torch
    from rampmeter.daemon.guardian import Guardian
    from rampmeter.layout import Root
    from support.hired import CLOCK, Desk
    Desk(Root(root), Guardian(CLOCK)).begin(1, {"t": torch.ones(5)}).result(200)
if __name__ == "__main__":
    process = multiprocessing.get_context(sys.argv[1]).Process(target=train, args=(sys.argv[2],), daemon=True)
    process.start()
    process.join()
    sys.exit(process.exitcode)
""")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, str(script), method, str(tmp_path / "root")], check=True, env=environment)
    assert [name.step for name in Root(tmp_path / "root").committed_steps()] == [1]


def test_a_script_without_a_guard_trains_once(tmp_path: Path) -> None:
    """The writer process never imports the training script, whose first line would train once more."""
    script = tmp_path / "train.py"
    script.write_text("""
import pathlib, sys, time
count = pathlib.Path(sys.argv[1])
count.write_text(count.read_text() + "x" if count.exists() else "x")
import torch
from rampmeter.daemon.guardian import Guardian
from rampmeter.layout import Root
from support.hired import CLOCK, Desk
guardian = Guardian(CLOCK)
Desk(Root(sys.argv[2]), guardian).begin(1, {"t": torch.ones(5)}).result(200)
guardian.close()
""")
    count = tmp_path / "count"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(script), str(count), str(tmp_path / "root")]
    subprocess.run(command, check=True, env=environment)
    assert count.read_text() == "x"
    assert [name.step for name in Root(tmp_path / "root").committed_steps()] == [1]
