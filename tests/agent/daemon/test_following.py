"""What passes between a writer and the other ranks of its job while training follows it."""

from dataclasses import dataclass, field
from typing import Any

from rampmeter.core.errors import CommitError, LeaseLost
from rampmeter.core.messages import FailReason
from rampmeter.daemon.following import Company, error_of
from rampmeter.daemon.parcel import Met, Outcome
from rampmeter.daemon.tidings import NOTHING_YET, Stage, Tidings


@dataclass
class Course:
    """The meeting of the ranks, by hand."""

    has_met: bool = False
    heard: list[Any] = field(default_factory=list)

    def heed(self) -> None:
        self.heard.append("heed")

    def ready(self, planned_bytes: int) -> None:
        self.heard.append(planned_bytes)

    def arrived(self) -> None:
        self.heard.append("arrived")

    def failed(self, error: BaseException) -> None:
        self.heard.append(error)


class Writer:
    def __init__(self) -> None:
        self.told: list[Met] = []

    def go_on(self, met: Met) -> None:
        self.told.append(met)


class Scene:
    def __init__(self) -> None:
        self.course, self.writer = Course(), Writer()
        self.company = Company(self.course, lambda: NOTHING_YET)  # type: ignore[arg-type]

    def look(self, stage: Stage | None, share_bytes: int = 500) -> list[Any]:
        """What the course hears of it."""
        tidings = None if stage is None else Tidings(number=1, stage=stage, share_bytes=share_bytes)
        self.course.heard.clear()
        self.company.look(self.writer, tidings)  # type: ignore[arg-type]
        return [heard for heard in self.course.heard if heard != "heed"]


def test_each_stage_is_said_once() -> None:
    """Also where the writer was faster than the looks."""
    slow = Scene()
    assert slow.look(None) == slow.look(Stage.TAKEN) == []
    assert slow.look(Stage.READY) == [500]
    assert slow.look(Stage.WRITING) == []
    assert slow.look(Stage.DURABLE) == ["arrived"]
    assert slow.look(Stage.DURABLE) == slow.look(Stage.COMMITTING) == []
    assert Scene().look(Stage.DURABLE) == [500, "arrived"]


def test_a_writer_goes_on_when_all_have_met_and_not_before() -> None:
    """It is told once."""
    scene = Scene()
    scene.look(Stage.DURABLE)
    scene.look(Stage.DURABLE)
    assert scene.writer.told == []
    scene.course.has_met = True
    scene.look(Stage.DURABLE)
    scene.look(Stage.DURABLE)
    assert scene.writer.told == [Met(NOTHING_YET)]


def test_the_failure_of_another_rank_is_looked_for_at_each_turn() -> None:
    """A writer that waits in a collective could not tell of it."""
    scene = Scene()
    scene.look(None)
    assert scene.course.heard == ["heed"]


def test_a_writer_that_was_told_to_stop_is_not_the_one_that_failed() -> None:
    """By whom it was told is known here."""
    told = error_of(Outcome(reason=FailReason.RANK_FAILED, detail="rank_failed"))
    assert isinstance(told, LeaseLost)
    assert str(told) == FailReason.RANK_FAILED
    own = error_of(Outcome(reason=FailReason.ENOSPC, detail="no space"))
    assert isinstance(own, CommitError)
    assert (str(own), own.reason) == ("no space", "enospc")
