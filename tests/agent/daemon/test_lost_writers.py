"""What becomes of a save whose writer process is killed, stopped or hangs, and of the next one."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from rampmeter.daemon import watch
from rampmeter.daemon.guardian import Guardian
from rampmeter.throttle import Throttle
from support.hired import CLOCK, GATE, LIMIT_S, MIB, Desk, HeldBeforeCommit, at_rate, failed
from support.large import LARGE
from support.processes import is_running
from support.waiting import wait_for

SOON_S = 1.0
"""The limit that a test is about, while it is; all others are the product's, so that none of them comes first."""


@pytest.fixture
def gate(guardian: Guardian) -> Path:
    """Known to the writer from its start on."""
    return Path(os.environ[GATE])


def _armed(desk: Desk) -> tuple[Any, Throttle]:
    throttle = Throttle()
    future = desk.begin(1, LARGE, throttle)
    wait_for(lambda: desk.first_bytes, what="the first byte in hand")
    return future, throttle


def _writing(desk: Desk) -> tuple[Any, Throttle]:
    future, throttle = _armed(desk)
    throttle.set_rate(2 * MIB)
    wait_for(lambda: throttle.counters().done_bytes > 0, what="some bytes")
    return future, throttle


def _before_the_commit(desk: Desk) -> tuple[Any, Throttle]:
    Path(os.environ[GATE]).touch()
    throttle = at_rate(None)
    future = desk.begin(1, LARGE, throttle, writer_class=HeldBeforeCommit)
    wait_for(lambda: throttle.counters().done_bytes >= 16 * MIB, what="all bytes")
    return future, throttle


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("bring", [_armed, _writing, _before_the_commit])
def test_a_writer_that_is_killed_or_stopped_costs_one_save(
    desk: Desk,
    guardian: Guardian,
    bring: Any,
    number: signal.Signals,
    gate: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At any stage it is noticed within the limits, nothing is committed, and another one makes the next save."""
    desk.begin(0, {"t": torch.ones(1)}).result(LIMIT_S)
    desk.first_bytes.clear()
    pid = guardian.pid
    assert pid is not None
    future, _ = bring(desk)
    with monkeypatch.context() as limits:
        limits.setattr(watch, "SILENT_S", SOON_S)
        before_s = CLOCK.now()
        os.kill(pid, number)
        assert failed(future) == "writer_lost"
        assert CLOCK.now() - before_s < 3.0
    assert not is_running(pid)
    gate.unlink(missing_ok=True)
    assert [name.step for name in desk.root.committed_steps()] == [0]
    desk.begin(2, LARGE).result(LIMIT_S)
    assert guardian.pid != pid
    assert [name.step for name in desk.root.committed_steps()] == [2, 0]


def test_a_writer_that_dies_between_two_saves_costs_none(desk: Desk, guardian: Guardian) -> None:
    """The save waits for the next one."""
    desk.begin(1, LARGE).result(LIMIT_S)
    pid, writer = guardian.pid, guardian._writer
    assert pid is not None
    assert writer is not None
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not writer.is_alive, what="its end")
    desk.begin(2, LARGE).result(LIMIT_S)
    assert guardian.pid != pid


@pytest.mark.parametrize("is_aborted", [True, False])
def test_a_writer_that_hangs_in_the_storage_is_ended(
    desk: Desk, guardian: Guardian, gate: Path, monkeypatch: pytest.MonkeyPatch, is_aborted: bool
) -> None:
    """It beats and does nothing: the save is lost with the reason `no_progress`, the lease is not held by it."""
    monkeypatch.setattr(watch, "OBEDIENCE_S" if is_aborted else "STANDSTILL_S", SOON_S)
    future, throttle = _before_the_commit(desk)
    pid = guardian.pid
    if is_aborted:
        throttle.abort("revoked")
    assert failed(future) == "no_progress"
    gate.unlink()
    assert pid is not None
    assert not is_running(pid)
    desk.begin(2, LARGE).result(LIMIT_S)
