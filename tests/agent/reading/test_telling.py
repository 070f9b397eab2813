"""What the log of a job says of a restore that waits: every reason once, and that it goes on."""

import logging

import pytest

from rampmeter.core.messages import RateReason, WaitReason
from rampmeter.core.reading import ReadWait
from rampmeter.reading.telling import WaitLog, meaning

T = 1000.0


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.INFO, logger="rampmeter")
    return caplog


def test_a_short_wait_is_not_told(log):
    """Within a second nobody asks why."""
    waiting = WaitLog("lustre")
    assert not waiting.look(WaitReason.QUEUE, T)
    assert waiting.tell_at_s == T + 1.0
    assert not waiting.look(None, T + 0.9)
    assert log.messages == []


def test_each_reason_is_told_once_and_that_it_goes_on(log):
    """However often it is looked at; a later wait tells anew."""
    waiting = WaitLog("lustre")
    told = [waiting.look(ReadWait.ROOM, T + after_s) for after_s in (0.0, 1.0, 2.0)]
    told += [waiting.look(WaitReason.GRACE, T + after_s) for after_s in (3.0, 4.0)]
    waiting.look(None, T + 5.0)
    assert told == [False, True, False, True, False]
    assert log.messages == [
        "waiting for a read slot in pool lustre: the coordinator gives one as soon as there is room",
        "waiting for a read slot in pool lustre: "
        "the coordinator has lost its memory and serves at first only who holds a lease",
        "the wait for a read slot in pool lustre is over",
    ]
    assert not waiting.look(ReadWait.ROOM, T + 6.0)
    assert waiting.look(ReadWait.ROOM, T + 7.0)


@pytest.mark.parametrize("why", [*ReadWait, *WaitReason, *RateReason])
def test_every_reason_has_words(why):
    """No underscore ever reaches a person."""
    assert "_" not in meaning(why)
