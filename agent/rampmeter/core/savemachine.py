"""The moves of one save after another: when it is due, what gives it the right to go on, when it is given up. Pure.

    IDLE -> DUE -> WAITING -> ARMED -> READY -> FLUSHING -> COMMITTED | ABORTED -> IDLE
                      ^_________|________|_________|   a lapsed lease: rate 0, ask again, keep the snapshot
            DUE, WAITING -> ABORTED                    given up: the snapshot, if there is one, is thrown away

Slot first, snapshot after: the snapshot is taken only in ARMED. Never waits for the coordinator for ever: a silent one
is replaced by the safe rate once it is usable, and where there is no plan at all by an ungoverned save. After a notice
it waits for a first answer for two seconds; one that answers is obeyed up to the last moment to begin.

Decides nothing about what is said, and knows of no other conversation: the pacer does, which is built on this.
"""

from rampmeter.core.leaseclock import LeaseClock
from rampmeter.core.lifecycle import ENDED, IN_PROGRESS, TRANSITIONS, WANTED, Governance, PacerState
from rampmeter.core.looking import LookFirst
from rampmeter.core.messages import AnyAnswer, Fence, Gone, GoneReason, Grant, LeaseState, Wait, WaitReason
from rampmeter.core.notice import GivenUp, GiveUp, Notice
from rampmeter.core.reading import RELEASE_TRIES_S
from rampmeter.core.schedule import Schedule
from rampmeter.core.talk import Talk

_S = PacerState


class SaveMachine:
    """All that is known of the save in hand. Whatever is new for the coordinator hurries `talk`."""

    def __init__(
        self, lease_clock: LeaseClock, *, schedule: Schedule, talk: Talk, looks_first: bool, local: bool
    ) -> None:
        self.lease_clock = lease_clock
        self.state = _S.IDLE
        self.governance = Governance.LOCAL if local else Governance.LEASE
        self.first_byte = False
        self.snapshot_s: float | None = None
        self.num_ungoverned = 0
        self.notice: Notice | None = None
        self.given_up: GivenUp | None = None
        """The newest save that was given up."""
        self.save_fence: Fence | None = None
        self.max_streams: int | None = None
        """How many writers the newest lease allows inside the job; None = no bound."""
        self.look_first = LookFirst(enabled=looks_first)
        self._local = local
        self._schedule = schedule
        self._talk = talk
        self._snapshot_taken = False
        self._ready_said = False
        self._giving_up = False
        self._ended_s = 0.0

    @property
    def wants_snapshot(self) -> bool:
        """Training should take the snapshot at its next step."""
        return self.state is _S.ARMED and not self._snapshot_taken

    @property
    def holds_snapshot(self) -> bool:
        """A save is in progress whose snapshot exists."""
        return self._snapshot_taken

    @property
    def _is_held_back(self) -> bool:
        """Due, and nobody has told yet that it can be made. After a notice it is tried whatever is told."""
        return self.state is _S.DUE and not self.look_first.cleared and self.notice is None

    # -- what training and the flush say -----------------------------------------------------------------------

    def asked(self) -> None:
        """The slot request is on its way."""
        if self.state is _S.DUE:
            self._to(_S.WAITING)

    def begin_snapshot(self, now_s: float) -> None:
        """Training takes the snapshot now; only while `wants_snapshot`."""
        assert self.wants_snapshot
        self._snapshot_taken = True
        self.first_byte = False
        self.snapshot_s = now_s

    def first_byte_in_hand(self) -> None:
        """The flush has its first byte and waits for a rate."""
        self.first_byte = True
        if self.state is _S.ARMED:
            self._be_ready()

    def ended(self, now_s: float, *, committed: bool) -> None:
        """The save has ended, one way or the other."""
        self._ended_s = now_s
        self._talk.hurries()
        self._giving_up &= not committed  # its last byte was out before it was told
        if not (self._giving_up and self.given_up and self.given_up.reason is GiveUp.MAKE_ROOM):
            self.notice = None  # one that came while room was made wants another save
        if self.governance is Governance.UNGOVERNED:
            self.num_ungoverned += 1
        self._to(_S.COMMITTED if committed and self.state is not _S.ARMED else _S.ABORTED)

    def released(self, now_s: float) -> None:
        """The lease is given back, or was never held: wait for the next save."""
        self.lease_clock.dropped()
        self._to(_S.IDLE)
        self.look_first.begin_anew()
        given_up = self.given_up if self._giving_up else None
        self._snapshot_taken = self.first_byte = self._ready_said = self._giving_up = False
        self.save_fence = self.max_streams = None
        self.governance = Governance.LOCAL if self._local else Governance.LEASE
        if given_up is not None:
            self._schedule.due_s = given_up.again_at_s
        else:  # at once where the notice came when the save had just ended
            plan, at_once = self.lease_clock.plan, self.notice is not None
            self._schedule.save_over(self.snapshot_s, plan, now_s, at_once=at_once)

    # -- time --------------------------------------------------------------------------------------------------

    def _pass_time(self, now_s: float) -> None:
        """What becomes of the save by time alone."""
        if self.state in ENDED and (self._local or self._release_is_pointless(now_s)):
            self.released(now_s)
        if self.state is _S.IDLE and now_s >= self._schedule.due_s:
            self._to(_S.DUE)
        if self.state in IN_PROGRESS and self._has_lapsed(now_s):
            self._lapse()
        if self.state in WANTED and not self._giving_up:
            self._consider_giving_up(now_s)

    def _release_is_pointless(self, now_s: float) -> bool:
        is_late = now_s >= self._ended_s + RELEASE_TRIES_S or self._waited_long_enough(now_s)
        return self.save_fence is None or is_late

    def _has_lapsed(self, now_s: float) -> bool:
        return self.governance is Governance.LEASE and self.lease_clock.lapsed(now_s)

    def _lapse(self) -> None:
        """Keep the snapshot, write nothing, ask again."""
        self.lease_clock.dropped()
        self._ready_said = False
        self._to(_S.WAITING)

    def _consider_giving_up(self, now_s: float) -> None:
        """The coordinator answered the notice and is obeyed: whoever got no place by the last moment writes nothing."""
        notice = self.notice
        if notice is not None and notice.is_heard and now_s >= notice.give_up_at_s:
            self._give_up(notice.given_up(GiveUp.TOO_LATE, now_s), now_s)

    def _give_up(self, given_up: GivenUp, now_s: float) -> None:
        """A save that has a snapshot ends when its flush has noticed; one that has not begun is just not made.

        Whoever asked for its place has said by this that no lease is held: nothing is left to be given back.
        """
        self.given_up, self._giving_up = given_up, True
        if not self._snapshot_taken:
            self._schedule.num_skipped += 1
            self.ended(now_s, committed=False)
            self.released(now_s)

    # -- the right to go on ------------------------------------------------------------------------------------

    def _consider_fallback(self, now_s: float) -> None:
        """Go on without an answer, if there is a right to."""
        if self.state not in WANTED or self._giving_up or self._is_held_back:
            return
        governance = self._fallback(now_s)
        if governance is not None:
            self.governance = governance
            self._proceed()

    def _fallback(self, now_s: float) -> Governance | None:
        if self._local:
            return Governance.LOCAL
        is_silent, is_heard = self._talk.is_silent, self.notice is not None and self.notice.is_heard
        if self._waited_long_enough(now_s) and (is_silent or not (is_heard or self._snapshot_taken)):
            return Governance.UNGOVERNED
        return self.lease_clock.right_in_silence(now_s) if is_silent else None

    def _waited_long_enough(self, now_s: float) -> bool:
        return self.notice is not None and now_s >= self.notice.answer_by_s

    def _proceed(self) -> None:
        """There is a right to go on: snapshot if there is none, else write on."""
        if self.first_byte:
            self._be_ready()
        else:
            self._to(_S.ARMED)

    def _be_ready(self) -> None:
        """With a lease the rate is told by the answer; without one nobody is waited for."""
        self._to(_S.READY)
        if self.governance is not Governance.LEASE:
            self._to(_S.FLUSHING)

    # -- what the coordinator says -----------------------------------------------------------------------------

    def _hears_again(self) -> None:
        """The coordinator answers: nothing but a lease counts from here."""
        if self.governance in (Governance.SAFE_RATE, Governance.UNGOVERNED) and self.state in IN_PROGRESS:
            self.governance = Governance.LEASE
            self._lapse()

    def _apply(self, answer: AnyAnswer, first_sent_s: float, now_s: float) -> None:
        """The answer to one of the save's own requests."""
        if isinstance(answer, Grant):
            self._granted(answer, first_sent_s)
        elif isinstance(answer, Gone):
            self._gone(answer.reason, now_s)
        elif isinstance(answer, Wait):
            self._told_to_wait(answer, now_s)

    def _granted(self, grant: Grant, first_sent_s: float) -> None:
        self.save_fence, self.max_streams = grant.fence, grant.max_streams
        if self.state in ENDED:
            return  # the save ended while the grant was on its way: the release that follows gives it back
        self.governance = Governance.LEASE
        self.lease_clock.granted(grant, first_sent_s)
        if self.state in WANTED:
            self._proceed()
        if self.state is _S.READY and grant.state is LeaseState.ACTIVE and grant.bytes_per_s > 0:
            self._ready_said = True
            self._to(_S.FLUSHING)

    def _told_to_wait(self, wait: Wait, now_s: float) -> None:
        self._talk.told_to_wait(now_s + wait.retry_after_s)
        notice, is_waiting = self.notice, self.state in WANTED and not self._giving_up
        if wait.reason is WaitReason.WILL_NOT_FIT and notice is not None and is_waiting:
            self._give_up(notice.given_up(GiveUp.WILL_NOT_FIT, now_s, fits_bytes=wait.fits_bytes), now_s)

    def _gone(self, reason: GoneReason, now_s: float) -> None:
        """The save goes on if it gets a lease again; one that makes room is thrown away and its job stays due.

        After a notice nothing is thrown away: there will be no other save. Its rate is 0 anyway.
        """
        if self.state not in IN_PROGRESS:
            return
        self._lapse()
        if reason is GoneReason.MAKE_ROOM and self._snapshot_taken and self.notice is None:
            given_up = GivenUp(reason=GiveUp.MAKE_ROOM, left_s=None, fits_bytes=None, again_at_s=now_s)
            self._give_up(given_up, now_s)

    def _to(self, state: PacerState) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state} -> {state}"
        self.state = state
