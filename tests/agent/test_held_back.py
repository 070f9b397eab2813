"""A save that cannot be made is not asked for: what lacks is told once, and looked at until the save can go on."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from rampmeter.core.messages import FailReason, Heartbeat
from rampmeter.core.pacer import Action
from rampmeter.events import SaveHeldBack
from rampmeter.preflight.shortage import Shortage
from support.scene import Scene

FULL = Shortage(reason=FailReason.ENOSPC, detail="the disk has nothing left")
BROKEN = Shortage(reason=FailReason.EIO, detail="the disk is gone")


class Looks:
    """Notes each look; answers are given by hand. `hangs`: the look before has not come back."""

    def __init__(self) -> None:
        self.sizes: list[int | None] = []
        self.tell: Callable[[Shortage | None], None] = print
        self.hangs = False

    def __call__(self, num_bytes: int | None, tell: Callable[[Shortage | None], None]) -> bool:
        self.sizes.append(num_bytes)
        self.tell = tell
        return not self.hangs


@pytest.fixture
def looks() -> Looks:
    return Looks()


@pytest.fixture
def scene(looks: Looks) -> Any:
    """A registered job of 5000 bytes whose first save is due."""
    scene = Scene(look=looks)
    scene.register()
    scene.speech.figures.num_bytes = 5000
    scene.clock.advance(60.0)
    return scene


def held_back(scene: Any) -> list[FailReason]:
    """What whoever listens was told."""
    return [event.reason for event in scene.events if isinstance(event, SaveHeldBack)]


def test_a_save_that_can_be_made_is_asked_for_at_once(scene: Any, looks: Looks) -> None:
    """One look, with the bytes that it will take; the keeper is poked."""
    assert scene.desk.advance() is Action.HEARTBEAT
    pokes = scene.pokes
    looks.tell(None)
    assert scene.pokes > pokes
    assert scene.desk.advance() is Action.ASK
    assert (looks.sizes, held_back(scene)) == ([5000], [])


def test_what_lacks_is_told_once_and_counts_as_one_failure(
    scene: Any, looks: Looks, caplog: pytest.LogCaptureFixture
) -> None:
    """In the log, as an event, and in the next heartbeat; four looks later the save is asked for."""
    with caplog.at_level(logging.WARNING, logger="rampmeter"):
        for _ in range(4):
            scene.desk.advance()
            looks.tell(FULL)
            scene.clock.advance(15.0)
    assert len(looks.sizes) == 4
    assert held_back(scene) == [FailReason.ENOSPC]
    assert [record.message for record in caplog.records] == [
        "the checkpoint that is due is not begun (enospc): the disk has nothing left; looking again every 15 s"
    ]
    heartbeat, _ = scene.desk.word(Action.HEARTBEAT)
    assert isinstance(heartbeat, Heartbeat)
    assert (heartbeat.num_failed, heartbeat.last_failure) == (1, FailReason.ENOSPC)
    looks.tell(None)
    assert scene.desk.advance() is Action.ASK


def test_another_reason_is_news_but_no_other_failure(scene: Any, looks: Looks) -> None:
    """It is still the same save that is late."""
    scene.desk.advance()
    looks.tell(FULL)
    looks.tell(BROKEN)
    heartbeat, _ = scene.desk.word(Action.HEARTBEAT)
    assert held_back(scene) == [FailReason.ENOSPC, FailReason.EIO]
    assert heartbeat.num_failed == 1


def test_a_look_that_does_not_come_back_is_a_reason_itself(scene: Any, looks: Looks) -> None:
    """After 15 s the storage counts as silent; when it answers at last the save goes on."""
    scene.desk.advance()
    looks.hangs = True
    scene.clock.advance(15.0)
    scene.desk.advance()
    assert held_back(scene) == [FailReason.ETIMEDOUT]
    looks.tell(None)
    assert scene.desk.advance() is Action.ASK


def test_the_end_of_what_held_a_save_back_is_told_once(
    scene: Any, looks: Looks, caplog: pytest.LogCaptureFixture
) -> None:
    """At the level of the warning: whoever has read the one reads the other."""
    with caplog.at_level(logging.WARNING, logger="rampmeter"):
        for found in (FULL, FULL, None, None):
            scene.desk.advance()
            looks.tell(found)
            scene.clock.advance(15.0)
    assert [record.message for record in caplog.records][1:] == [
        "the checkpoint that was held back (enospc) is asked for now"
    ]
