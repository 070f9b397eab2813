"""The flow of a job on rank 0: kept until the ranks have begun, followed when all follow, one failure for all."""

import threading

from rampmeter.core.clock import ManualClock
from rampmeter.core.messages import FailReason
from rampmeter.ranks.agreement import Agreed
from rampmeter.ranks.attending import RankSave
from rampmeter.ranks.jobflow import JobFlow
from rampmeter.ranks.member import Member
from rampmeter.ranks.words import EventKind, Purpose
from rampmeter.throttle import FlowCounters, Throttle

SUM = FlowCounters(done_bytes=700, throttled_s=3.0, blocked_s=2.0, busy_s=1.0)


class Conductor:
    """Notes what it is told; what the ranks have applied is set by hand."""

    def __init__(self) -> None:
        self.rates: list[tuple[int | None, float | None]] = []
        self.applied = 0

    def set_rate(self, bytes_per_s: int | None, until_s: float | None) -> int:
        self.rates.append((bytes_per_s, until_s))
        return len(self.rates)

    def have_applied(self, version: int) -> bool:
        return self.applied >= version

    def counters(self) -> FlowCounters:
        return SUM


class Scene:
    def __init__(self) -> None:
        self.conductor = Conductor()
        self.throttle = Throttle(clock=ManualClock())
        self.flow = JobFlow(self.conductor, self.throttle)  # type: ignore[arg-type]
        self.member = Member(0)

    def join(self) -> None:
        agreed = Agreed(number=1, purpose=Purpose.SAVE, detail="", new_group=False)
        attendance = self.member.begin(agreed, 40)
        changed = threading.Condition()
        self.flow.joined(
            RankSave(self.member, attendance, self.throttle, changed=changed, hurry=lambda: None)
        )


def test_a_rate_from_before_the_ranks_have_begun_reaches_them() -> None:
    """Only the newest one; what comes later goes on at once."""
    scene = Scene()
    scene.flow.set_rate(5, 1.0)
    scene.flow.set_rate(None)
    assert not scene.conductor.rates
    scene.join()
    assert scene.conductor.rates == [(None, None)]
    scene.flow.set_rate(7, 2.0)
    assert scene.conductor.rates == [(None, None), (7, 2.0)]


def test_it_is_followed_when_all_ranks_have_the_newest_rate() -> None:
    """Before they have begun nobody writes, so nothing is followed late."""
    scene = Scene()
    assert scene.flow.is_followed
    scene.join()
    assert not scene.flow.is_followed
    scene.conductor.applied = 1
    assert scene.flow.is_followed
    scene.flow.set_rate(3, 9.0)
    assert not scene.flow.is_followed


def test_what_was_written_is_that_of_all_ranks_once_they_have_begun() -> None:
    """Before that there is only this rank."""
    scene = Scene()
    assert scene.flow.counters() == scene.throttle.counters()
    scene.join()
    assert scene.flow.counters() == SUM


def test_an_abort_fails_the_save_on_all_ranks_for_its_reason() -> None:
    """This rank's writer stops, and the others are told once, with the word for it."""
    scene = Scene()
    scene.join()
    scene.flow.abort("make_room")
    scene.flow.abort("closing")
    assert scene.throttle.abort_reason == "make_room"
    assert [(event.kind, event.reason) for event in scene.member.to_say] == [
        (EventKind.FAILED, FailReason.MAKE_ROOM)
    ]
