"""Saves that a real writer process refuses or cannot make: the reason is the one that a thread would have."""

import os
import signal
from pathlib import Path

import pytest
import torch

from rampmeter.core.errors import ConfigError
from rampmeter.daemon.guardian import Guardian
from rampmeter.layout import Root
from rampmeter.throttle import Throttle
from support.hired import LIMIT_S, MIB, Desk, failed, no_checkpoint
from support.large import LARGE
from support.small_disk import may_mount, small_disk
from support.waiting import wait_for


def test_values_that_are_not_finite_cost_no_byte(desk: Desk, guardian: Guardian) -> None:
    """The writer looks at them while it plans, and goes on living."""
    throttle = Throttle()  # no rate is needed for that
    assert failed(desk.begin(1, {"t": torch.tensor([1.0, float("nan")])}, throttle)) == "not_finite"
    assert (throttle.counters().done_bytes, desk.first_bytes) == (0, [])
    pid = guardian.pid
    assert desk.begin(2, {"t": torch.tensor(float("inf"))}, check_finite=False).result(LIMIT_S)
    assert guardian.pid == pid


def test_what_cannot_be_handed_over_costs_no_writer(desk: Desk, guardian: Guardian) -> None:
    """A lambda in the state is told by its place; the process had no part in it, and makes the next save."""
    desk.begin(1, LARGE).result(LIMIT_S)
    pid = guardian.pid
    error = desk.begin(2, {"t": torch.ones(2), "cfg": {"f": lambda: 1}}).exception(LIMIT_S)
    assert isinstance(error, ConfigError)
    assert str(error).startswith("cfg.f is of type function and cannot be pickled")
    desk.begin(3, LARGE).result(LIMIT_S)
    assert guardian.pid == pid


def test_signals_that_announce_the_end_are_not_for_the_writer(desk: Desk, guardian: Guardian) -> None:
    """They reach all processes of a job; the save that follows them is written by this one."""
    desk.begin(1, LARGE).result(LIMIT_S)
    pid = guardian.pid
    assert pid is not None
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        os.kill(pid, number)
    desk.begin(2, LARGE).result(LIMIT_S)
    assert guardian.pid == pid


def test_a_newer_attempt_fences_the_writer(desk: Desk) -> None:
    """The claim is looked at where the commit is made."""
    throttle = Throttle()
    future = desk.begin(1, LARGE, throttle)
    wait_for(lambda: desk.first_bytes, what="the first byte in hand")
    desk.root.claim_attempt()
    throttle.set_rate(None)
    assert failed(future) == "superseded"
    assert no_checkpoint(desk.root)


@pytest.mark.skipif(not may_mount(), reason="mounting a small file system needs root")
def test_a_full_disk_costs_only_this_save(tmp_path: Path, guardian: Guardian) -> None:
    """The reason is the storage's, word for word as from a thread."""
    with small_disk(tmp_path / "small", 8 * MIB) as disk:
        desk = Desk(Root(disk / "root"), guardian)
        future = desk.begin(1, LARGE)
        assert failed(future) == "enospc"
        assert "No space left" in str(future.exception())
        for directory in disk.glob("root/step-*"):
            for file in directory.iterdir():
                file.unlink()
        desk.begin(2, {"t": torch.ones(1000)}).result(LIMIT_S)


def test_a_root_that_is_gone_is_told_as_such(desk: Desk) -> None:
    """No directory, no claim: the words for people come over as they are."""
    throttle = Throttle()
    future = desk.begin(1, LARGE, throttle)
    wait_for(lambda: desk.first_bytes, what="the first byte in hand")
    (desk.root.path / "attempts").rename(desk.root.path / "elsewhere")
    throttle.set_rate(None)
    assert failed(future) == "enoent"
    assert "attempts is gone" in str(future.exception())
