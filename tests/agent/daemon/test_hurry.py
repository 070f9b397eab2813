"""A save in a hurry waits for no process that is still starting: a thread writes what is staged already."""

import os
import signal
from typing import Any

import pytest
import torch

import rampmeter
from rampmeter.daemon import route as route_module
from rampmeter.daemon.guardian import Guardian
from rampmeter.daemon.mode import Mode
from rampmeter.layout import Root
from rampmeter.restore import restore
from rampmeter.throttle import Throttle
from support.hired import CLOCK

SOON_S = 10.0
"""Of a start that would take two minutes; it is some milliseconds."""


class NeverThere:
    """A process that has begun to start, as after the loss of the one before it."""

    def has_started(self, limit_s: float) -> bool:
        CLOCK.sleep(limit_s)
        return False

    def end(self, limit_s: float) -> None:
        """It has nothing to end."""

    def kill(self) -> None:
        """Nor to kill."""


@pytest.fixture(autouse=True)
def starting(monkeypatch: pytest.MonkeyPatch) -> None:
    """No writer is there for as long as anybody waits."""

    def make(clock: Any, **kwargs: Any) -> Guardian:
        return Guardian(clock, NeverThere, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(route_module, "Guardian", make)


def open_throttle() -> Throttle:
    throttle = Throttle()
    throttle.set_rate(None)
    return throttle


@pytest.mark.parametrize("when", ["before the save", "while it waits"])
def test_a_save_in_a_hurry_is_written_at_once(root: Root, make_saver: Any, when: str) -> None:
    """What it commits is what was staged, whatever training does to it meanwhile; objects come back, too."""
    saver = make_saver(mode=Mode.PROCESS)
    state = {"t": torch.ones(1000), "cfg": {"lr": [1, "two"]}}
    if when == "before the save":
        saver.hurry()
    result = saver.begin(1, state, open_throttle())
    state["t"].zero_()
    if when == "while it waits":
        assert not result.done()
        saver.hurry()
    report = result.result(SOON_S)
    assert (report.committed, report.reason) == (True, None)
    found: dict[str, Any] = {"t": torch.zeros(1000), "cfg": {"lr": None}}
    assert restore(root, found) is not None
    assert torch.equal(found["t"], torch.ones(1000))


def test_a_signal_makes_a_save_that_needs_no_process(tmp_path: Any) -> None:
    """The loop of a job that is told to go ends with a checkpoint, long before a process would be there."""
    begun_s = CLOCK.now()
    with rampmeter.Checkpointer(tmp_path, mode="process", seed=1) as ckpt:
        os.kill(os.getpid(), signal.SIGTERM)
        step = 0
        while not ckpt.should_stop:
            step += 1
            ckpt.step(step, {"t": torch.ones(3)})
        assert ckpt.last_save is not None
        assert ckpt.last_save.committed
        assert ckpt.exit_code == 75
    assert CLOCK.now() < begun_s + 2 * SOON_S
