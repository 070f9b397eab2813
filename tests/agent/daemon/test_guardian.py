"""Lives of guardians: writers that do not start, starts that take long, ends."""

import logging
import os
import signal

import pytest

from rampmeter.core.errors import LeaseLost
from rampmeter.daemon.guardian import Guardian
from rampmeter.daemon.hired import HiredWriter
from rampmeter.layout import Root
from rampmeter.throttle import Throttle
from support.hired import CLOCK, Desk, failed
from support.large import LARGE
from support.waiting import wait_for


class NoWriter:
    """What cannot be started."""

    def __init__(self) -> None:
        raise OSError(12, "Cannot allocate memory")


def test_after_two_losses_there_is_no_writer_any_more(root: Root, caplog: pytest.LogCaptureFixture) -> None:
    """One warning says so, with the reason."""
    guardian = Guardian(CLOCK, NoWriter)  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING, logger="rampmeter"):
        guardian.warm_up()
        wait_for(lambda: not guardian.is_usable, what="two failed starts")
        guardian.warm_up()
        assert failed(Desk(root, guardian).begin(1, LARGE)) == "writer_lost"
    (record,) = caplog.records
    assert "in a thread of training from now on" in record.message
    assert "Cannot allocate memory" in record.message
    guardian.close()


class SlowStart(HiredWriter):
    """Is not ready for as long as it is asked."""

    def has_started(self, limit_s: float) -> bool:
        CLOCK.sleep(limit_s)
        return False


def test_an_abort_ends_the_wait_for_a_writer_that_starts(root: Root) -> None:
    """Starting may take a minute on a slow file system; a save that is given up does not wait for it."""
    guardian = Guardian(CLOCK, SlowStart)
    throttle = Throttle()
    future = Desk(root, guardian).begin(1, LARGE, throttle)
    throttle.abort("revoked")
    error = future.exception(2.0)
    assert isinstance(error, LeaseLost)
    assert str(error) == "revoked"
    guardian.close()


def test_closing_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is still starting, idle or stopped."""
    monkeypatch.setattr("rampmeter.daemon.guardian.END_LIMIT_S", 0.2)
    hired: list[HiredWriter] = []

    def hire() -> HiredWriter:
        hired.append(HiredWriter())
        return hired[-1]

    starting = Guardian(CLOCK, hire)
    starting.warm_up()
    wait_for(lambda: hired, what="the start")
    starting.close()
    wait_for(lambda: not hired[0].is_alive, what="its end")
    stopped = Guardian(CLOCK, hire)
    stopped.warm_up()
    wait_for(lambda: stopped.pid, what="the start")
    assert stopped.pid is not None
    os.kill(stopped.pid, signal.SIGSTOP)
    stopped.close()
    assert not hired[1].is_alive
