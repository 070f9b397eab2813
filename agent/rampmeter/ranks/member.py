"""What one rank makes of the log, and what it says of itself: its vote, its save, its leaving.

Pure: no thread, no store, no clock. Every rank, also rank 0, is one; what rank 0 decides for all is in `lead`.
"""

from collections import deque

from rampmeter.core.messages import FailReason
from rampmeter.ranks.agreement import Agreed, Voter
from rampmeter.ranks.counter import CallCounter
from rampmeter.ranks.meeting import Attendance
from rampmeter.ranks.words import (
    VERDICTS,
    Beside,
    Event,
    EventKind,
    Post,
    Purpose,
    Share,
    Stage,
    as_line,
)
from rampmeter.throttle import FlowCounters

_NO_FLOW = FlowCounters(done_bytes=0, throttled_s=0.0, blocked_s=0.0, busy_s=0.0)


class Member:
    """One per rank. Not locked, but for `counter`: its owner does that. `to_say` is what goes into the log next."""

    def __init__(self, rank: int) -> None:
        self.counter = CallCounter()
        self.to_say: deque[Event] = deque()
        self.attendance: Attendance | None = None
        self.stopped = False
        """All ranks leave the training loop."""
        self.leaving = False
        self._rank = rank
        self._voter = Voter(self.counter)
        self._taken: Agreed | None = None  # a save that was agreed on and is not begun yet
        self._last_failed: Event | None = None

    # -- training ----------------------------------------------------------------------------------------------

    @property
    def is_voting(self) -> bool:
        """A proposal is neither done nor dropped."""
        return self._voter.is_open

    @property
    def must_wait(self) -> bool:
        """At the armed call: the verdict is still on its way."""
        return self._voter.must_wait

    def conclude(self) -> Agreed | None:
        """At the armed call, when it has waited: what all do; None if nothing is agreed on."""
        agreed = self._voter.take()
        given_up = self._voter.give_up(self._rank)
        if given_up is not None:
            self.to_say.append(given_up)
        if agreed is not None and agreed.purpose is Purpose.SAVE:
            self._taken = agreed
        elif agreed is not None:
            self.stopped = True
        return agreed

    def begin(self, agreed: Agreed, step: int, *, stage: Stage = Stage.HOLDING) -> Attendance:
        """This rank holds its snapshot for the agreed save."""
        self._taken = None
        self.attendance = Attendance(number=agreed.number, step=step, stage=stage)
        if self._last_failed is not None:  # it may be of this save: others were here before
            self.attendance.heard(self._last_failed)
        return self.attendance

    def cannot(self, agreed: Agreed, why: str, reason: FailReason) -> None:
        """This rank has no snapshot for the agreed save: it fails."""
        self._taken = None
        self.fail(agreed.number, why, reason)

    def fail(self, number: int, why: str, reason: FailReason = FailReason.RANK_FAILED) -> None:
        """The save fails on all ranks, because of this one."""
        failed = Event(
            kind=EventKind.FAILED, number=number, rank=self._rank, detail=as_line(why), reason=reason
        )
        self.to_say.append(failed)

    # -- the log -----------------------------------------------------------------------------------------------

    def heard(self, event: Event) -> None:
        """Read an event."""
        if event.kind is EventKind.PROPOSED:
            self._voter.proposed(event)
        elif event.kind in VERDICTS:
            self._voter.judged(event)
            self._note_missed()
        elif event.kind is EventKind.FAILED and not self._is_known_to_fail(event.number):
            self._last_failed = event
        if self.attendance is not None:
            self.attendance.heard(event)

    def _is_known_to_fail(self, number: int) -> bool:
        """The first failure of a save stands."""
        return self._last_failed is not None and self._last_failed.number == number

    def _note_missed(self) -> None:
        missed, self._voter.missed = self._voter.missed, None
        if missed is None:
            return
        if missed.purpose is Purpose.STOP:  # later than the others, but it must
            self.stopped = True
        else:
            self.fail(missed.number, f"rank {self._rank} missed the agreed call of step()")

    def lost(self, why: str) -> None:
        """Nothing will be heard any more: whatever needs the others fails here."""
        self._voter.lost()
        self.lose_rank_0(why)

    def lose_rank_0(self, why: str) -> None:
        """Rank 0 is heard no more: the save fails here at once, and on all others if it is heard again."""
        if self.attendance is None or self.attendance.is_settled:
            return
        failed = Event(
            kind=EventKind.FAILED,
            number=self.attendance.number,
            rank=0,
            detail=as_line(why),
            reason=FailReason.RANK_FAILED,
        )
        self.attendance.heard(failed)
        self.to_say.append(failed)

    # -- the post ----------------------------------------------------------------------------------------------

    def post(
        self, *, num_read: int, applied: int, flow: FlowCounters = _NO_FLOW, beside: Beside | None = None
    ) -> Post:
        """The newest state of this rank. `applied` and `flow` are of its writer."""
        save = self.attendance
        return Post(
            num_calls=self.counter.num_calls,
            answer=self._voter.answer,
            concluded=self._voter.concluded if self._taken is None else self._taken.number - 1,
            share=Share() if save is None else save.share(flow),
            applied=applied,
            num_read=num_read,
            needs_group=save is not None and save.needs_group,
            left=self.leaving,
            beside=beside or Beside(),
        )
