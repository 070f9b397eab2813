"""An announced end is told in the job's log: who announced it, what follows, and what became of the last save."""

import logging
import os
import signal
from dataclasses import replace

import pytest
import torch

import rampmeter
from rampmeter.core.messages import WaitReason
from support.answers import wait
from support.scene import REPORT, Scene
from support.waiting import wait_for

BEGINS = "SIGTERM: the job ends in 30 s; one more save is made as soon as possible"


@pytest.fixture(autouse=True)
def warnings(caplog):
    with caplog.at_level(logging.WARNING, logger="rampmeter"):
        yield


def noticed(scene: Scene) -> Scene:
    scene.desk.notice("SIGTERM")
    scene.desk.advance()
    return scene


def test_the_signal_itself_logs_nothing(caplog) -> None:
    """It may have come in the middle of a line of the log: whoever looks next tells, once."""
    scene = Scene()
    scene.register()
    scene.desk.notice("SIGTERM")
    assert caplog.messages == []
    scene.desk.notice("SIGUSR1")
    for _ in range(3):
        scene.desk.advance()
    (text,) = caplog.messages
    assert text.startswith(BEGINS)
    assert "exit_code is 75" in text


def test_a_save_that_is_being_made_is_said_to_be_finished(caplog) -> None:
    """It is the one for the end; it is told with what was left."""
    scene = Scene()
    scene.flush()
    noticed(scene)
    assert "the save that is being made is finished" in caplog.messages[0]
    scene.clock.advance(10.0)
    scene.end(REPORT)
    assert caplog.messages[1].startswith("step 40 is saved 16 s before the announced end")
    assert len(caplog.messages) == 2


def test_a_last_save_that_fails_is_told_as_a_loss(caplog) -> None:
    """With the word for it."""
    scene = Scene()
    scene.flush()
    noticed(scene)
    scene.end(replace(REPORT, committed=False, reason="enospc"))
    assert caplog.messages[1] == (
        "the announced end loses what came after the newest checkpoint: its save failed (enospc)"
    )


def test_a_last_save_that_is_given_up_is_told_of_once(caplog) -> None:
    """Where that is decided; neither its end nor the close of the job says it again."""
    scene = Scene()
    scene.flush()
    noticed(scene)
    scene.clock.advance(29.0)
    scene.say(lambda seq: wait(seq, fits_bytes=4_000_000, reason=WaitReason.WILL_NOT_FIT))
    scene.end(replace(REPORT, committed=False, reason="will_not_fit"))
    scene.desk.parting.closing()
    assert [said for said in caplog.messages if "announced end" in said] == caplog.messages[1:2]
    assert caplog.messages[1].startswith("no save before the announced end")


def test_a_last_save_that_is_never_begun_is_told_of_once_too(caplog) -> None:
    """There is no end of a save that would say it."""
    scene = Scene()
    scene.register()
    noticed(scene)
    scene.say(lambda seq: wait(seq, fits_bytes=4_000_000, reason=WaitReason.WILL_NOT_FIT))
    scene.desk.parting.closing()
    assert len(caplog.messages) == 2
    assert caplog.messages[1].startswith("no save before the announced end")


def test_a_signal_to_a_training_loop_leaves_two_lines(tmp_path, caplog) -> None:
    """As a user reads them with no coordinator and no logging set up."""
    with rampmeter.Checkpointer(tmp_path, mode="thread", seed=1) as ckpt:
        os.kill(os.getpid(), signal.SIGTERM)
        step = 0
        while not ckpt.should_stop:
            step += 1
            ckpt.step(step, {"t": torch.ones(3)})
    first, last = (said for said in caplog.messages if "lack" not in said)
    assert first.startswith("SIGTERM: the job ends in 2 min")
    assert last.startswith("step ")
    assert "before the announced end" in last


def test_a_loop_that_leaves_at_once_is_told_what_it_loses(tmp_path, caplog) -> None:
    """It asked neither for a save nor should_stop."""
    with rampmeter.Checkpointer(tmp_path, mode="thread", seed=1):
        os.kill(os.getpid(), signal.SIGUSR1)
        wait_for(lambda: caplog.messages, what="the notice")
    assert caplog.messages[0].startswith("SIGUSR1: the job ends in 2 min")
    assert caplog.messages[1:] == [
        "the announced end loses what came after the newest checkpoint: it left before that was saved"
    ]
