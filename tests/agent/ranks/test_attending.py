"""One rank's share of a save whose writer is another process: what it tells the others of it, and when."""

import threading

import pytest

from rampmeter.core.clock import ManualClock
from rampmeter.core.errors import RankFailed
from rampmeter.core.messages import FailReason
from rampmeter.ranks.attending import RankSave
from rampmeter.ranks.meeting import Attendance
from rampmeter.ranks.member import Member
from rampmeter.ranks.rates import RankRate
from rampmeter.ranks.words import Event, EventKind, Stage
from rampmeter.throttle import FlowCounters, Throttle

NUMBER = 7


class Remote:
    """A writer in another process, which obeys when it is told to."""

    is_followed = False

    def steer(self, *_: object) -> None:
        pass

    def counters(self) -> FlowCounters:
        return FlowCounters(done_bytes=5, throttled_s=0.0, blocked_s=0.0, busy_s=0.0)


class Share:
    def __init__(self, stage: Stage = Stage.JOINED) -> None:
        self.attendance = Attendance(number=NUMBER, step=40, stage=stage)
        self.throttle = Throttle(clock=ManualClock())
        self.remote = Remote()
        self.throttle.lend(self.remote)
        self.save = RankSave(
            Member(1),
            self.attendance,
            self.throttle,
            changed=threading.Condition(threading.RLock()),
            hurry=lambda: None,
        )

    def heard(self, kind: EventKind, rank: int = 0, why: str = "") -> None:
        self.attendance.heard(
            Event(kind=kind, number=NUMBER, rank=rank, detail=why, reason=FailReason.WRITER_LOST)
        )


def test_a_rate_is_applied_when_the_writer_obeys_it() -> None:
    """Not when its trainer has heard of it: a lowering may be confirmed only then."""
    share = Share(Stage.READY)
    assert share.save.wants_rate
    share.save.follow(RankRate(version=3, bytes_per_s=100, until_s=None))
    assert (share.save.applied, share.save.wants_rate) == (0, False)
    share.remote.is_followed = True
    assert share.save.applied == 3
    share.remote.is_followed = False
    share.save.follow(RankRate(version=4, bytes_per_s=50, until_s=None))
    assert share.save.applied == 3


def test_it_is_there_when_its_writer_is() -> None:
    """Until then it only holds its snapshot."""
    share = Share()
    assert share.save.is_beginning
    share.heard(EventKind.OPENED)
    share.save.begin()
    assert share.attendance.stage is Stage.HOLDING


def test_whoever_must_not_wait_can_look() -> None:
    """Arrived is said at once; that all are there is seen, and so is who failed."""
    share = Share(Stage.READY)
    share.save.arrived()
    assert (share.attendance.stage, share.save.has_met) == (Stage.DONE, False)
    share.heard(EventKind.MET)
    assert share.save.has_met
    assert share.save.failed_by is None
    failing = Share(Stage.READY)
    failing.heard(EventKind.FAILED, rank=2, why="lost its writer")
    error = failing.save.failed_by
    assert isinstance(error, RankFailed)
    assert (str(error), error.reason) == ("rank 2 failed: lost its writer", "writer_lost")
    with pytest.raises(RankFailed, match="rank 2"):
        failing.save.done()


def test_what_is_open_is_begun_by_all_or_none() -> None:
    """A failure that is heard with the opening comes too late to keep one rank from the collective of the others."""
    late = Share(Stage.HOLDING)
    late.heard(EventKind.OPENED)
    late.heard(EventKind.FAILED, rank=2, why="lost its writer")
    late.save.begin()
    early = Share(Stage.HOLDING)
    early.heard(EventKind.FAILED, rank=2, why="lost its writer")
    early.heard(EventKind.OPENED)
    with pytest.raises(RankFailed, match="rank 2"):
        early.save.begin()
