"""The look itself: in a thread of its own, never raising, never two at once, each caution said once."""

import errno
import logging
import os
import threading
from pathlib import Path

import pytest

from rampmeter.core.messages import FailReason
from rampmeter.preflight.lookout import Lookout
from rampmeter.preflight.shortage import Need, Shortage
from support.waiting import wait_for

LITTLE = Need(num_bytes=1000, staged_bytes=1000)


def look(lookout: Lookout, need: Need = LITTLE) -> Shortage | None:
    """What a look tells."""
    told: list[Shortage | None] = []
    assert lookout.look(need, told.append)
    wait_for(lambda: told, what="a look")
    return told[0]


def test_a_small_save_can_be_made_here_and_one_of_an_exabyte_cannot(tmp_path: Path) -> None:
    """The real file system is asked."""
    assert look(Lookout(tmp_path)) is None
    found = look(Lookout(tmp_path), Need(num_bytes=10**18, staged_bytes=0))
    assert found is not None
    assert found.reason is FailReason.ENOSPC


def test_a_root_that_cannot_be_looked_at_is_a_reason(tmp_path: Path) -> None:
    """Not there, or its mount has lost its server: told like any other reason."""
    found = look(Lookout(tmp_path / "gone"))
    assert found is not None
    assert found.reason is FailReason.ENOENT
    assert "unmounted" in found.detail


def test_storage_that_hangs_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`look` comes back at once; while one look hangs there is no second; in the end it tells what it saw."""
    answers = threading.Event()

    def hang(_path: Path) -> None:
        answers.wait(60.0)
        raise OSError(errno.EIO, "after a long time")

    monkeypatch.setattr(os, "statvfs", hang)
    lookout, told = Lookout(tmp_path), []
    assert lookout.look(LITTLE, told.append)
    assert not lookout.look(LITTLE, told.append)
    assert told == []
    answers.set()
    wait_for(lambda: told, what="the look that hung")
    assert told[0].reason is FailReason.EIO


def test_cautions_are_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A save whose length changes a little at each commit is no news; nor is the mode of the root."""
    lookout = Lookout(tmp_path, {"SLURM_JOB_ID": "1"})
    tmp_path.chmod(0o770)
    before = os.umask(0o077)
    try:
        with caplog.at_level(logging.WARNING, logger="rampmeter"):
            for save_s in (10.0, 100.0, 101.0):
                lookout.save_takes(save_s)
                lookout.look_around()
    finally:
        os.umask(before)
    assert sum("Slurm" in record.message for record in caplog.records) == 1
    assert sum("umask" in record.message for record in caplog.records) == 1
