"""The life of one save after another: when to ask, when to snapshot, what to say next. Pure; the keeper does the I/O.

    IDLE -> DUE -> WAITING -> ARMED -> READY -> FLUSHING -> COMMITTED | ABORTED -> IDLE
                      ^_________|________|_________|   a lapsed lease: rate 0, ask again, keep the snapshot
            DUE, WAITING -> ABORTED                    given up: the snapshot, if there is one, is thrown away

Slot first, snapshot after: the snapshot is taken only in ARMED. Events come in as method calls with `now_s`; what to
do comes out of `next_action`, and `wake_at` says when to look again. Never waits for the coordinator for ever: a silent
one is replaced by the safe rate once it is usable, and where there is no plan at all by an ungoverned save. After a
notice it waits for a first answer for two seconds; one that answers is obeyed up to the last moment to begin.

A job has one lease. While it restores, no save is asked for, since training stands still; a flush that goes on comes
first, and the restore waits for it (`reading`). What is read back beside training (`rereading`) gives way to both.
"""

import math
from dataclasses import replace

from rampmeter.core.leaseclock import LeaseClock
from rampmeter.core.lifecycle import (
    ENDED,
    IN_PROGRESS,
    TRANSITIONS,
    Action,
    Governance,
    PacerState,
)
from rampmeter.core.looking import LookFirst
from rampmeter.core.messages import (
    AnyAnswer,
    Fence,
    Gone,
    GoneReason,
    Grant,
    LeaseState,
    Wait,
    WaitReason,
)
from rampmeter.core.notice import GivenUp, GiveUp, Notice
from rampmeter.core.reading import Reading
from rampmeter.core.rereading import Rereading
from rampmeter.core.schedule import Schedule

__all__ = ["TRANSITIONS", "Action", "Governance", "Pacer", "PacerState"]

_S = PacerState

RELEASE_TRIES_S = 30.0
"""A release that nobody hears is given up after this: the lease ends by itself."""


_AFTER_HEARTBEATS = frozenset({Action.ASK_REREAD, Action.RENEW_REREAD})
"""Said for hours perhaps, while training goes on; all else is soon over."""


class Pacer:
    """One per attempt. `local` means that there is no coordinator and never will be."""

    def __init__(
        self,
        lease_clock: LeaseClock,
        *,
        now_s: float,
        draw: float,
        own_period_s: float,
        local: bool,
        looks_first: bool = False,
        read_unasked_s: float = 0.0,
    ) -> None:
        """`draw` in [0, 1) places the first save; `own_period_s` is the interval where there is no plan.

        `looks_first`: what is due is asked for once somebody who `wants_look` has told that it can be made.
        `read_unasked_s`: after so much silence a restore begins without a lease.
        """
        self.reading = Reading(local=local, delay_s=read_unasked_s)
        self.rereading = Rereading(local=local)
        self.lease_clock = lease_clock
        self.state = _S.IDLE
        self.governance = Governance.LOCAL if local else Governance.LEASE
        self.registered = local
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
        self._snapshot_taken = False
        self._ready_said = False
        self._retry_at_s = 0.0
        self._heartbeat_at_s = now_s
        self._silent = False
        self._notice_heard = False
        self._giving_up = False
        self._ended_s = 0.0
        self._schedule = Schedule(now_s=now_s, draw=draw, own_period_s=own_period_s, plan=lease_clock.plan)

    # -- what to do --------------------------------------------------------------------------------------------

    def next_action(self, now_s: float) -> Action:
        """What to say now. Call `tick` first."""
        if self._local:
            return Action.NOTHING
        may_beat = self.registered and now_s >= self._heartbeat_at_s
        if now_s >= self._retry_at_s:
            action = self._pressing_action(now_s)
            if action is not Action.NOTHING and not (may_beat and action in _AFTER_HEARTBEATS):
                return action
        return Action.HEARTBEAT if may_beat else Action.NOTHING

    def _pressing_action(self, now_s: float) -> Action:
        if not self.registered:
            return Action.REGISTER
        if self.rereading.owed is not None:
            return Action.RELEASE_REREAD
        if self.state in ENDED:
            return Action.RELEASE
        reads = Action.NOTHING if self._snapshot_taken else self.reading.next_action(now_s)
        if reads is not Action.NOTHING or self._stands_back:
            return reads
        return self._action_of_save(now_s)

    def _action_of_save(self, now_s: float) -> Action:
        """Or of what is read back while there is none."""
        if self.state in (_S.DUE, _S.WAITING):
            return Action.NOTHING if self._giving_up or self._is_held_back else Action.ASK
        if self.state in IN_PROGRESS and self.governance is Governance.LEASE:
            return Action.READY if self.state is _S.READY and not self._ready_said else Action.RENEW
        return self.rereading.next_action(now_s)

    def wake_at(self, now_s: float) -> float:
        """The next time at which `tick` or `next_action` may have something new; infinity if never."""
        times = [self._retry_at_s, self._heartbeat_at_s, *self.lease_clock.changes(), *self.reading.changes()]
        times += self.rereading.changes()
        if self.state is _S.IDLE:
            times.append(self.due_s)
        if self._is_held_back:
            times.append(self.look_first.again_at_s)
        if self.notice is not None:
            times += [self.notice.answer_by_s, self.notice.give_up_at_s]
        return min((t for t in times if t > now_s), default=math.inf)

    @property
    def _is_held_back(self) -> bool:
        """Due, and nobody has told yet that it can be made. After a notice it is tried whatever is told."""
        return self.state is _S.DUE and not self.look_first.cleared and self.notice is None

    @property
    def _stands_back(self) -> bool:
        """A restore is going on, and no snapshot exists yet: there is nothing to save before it has ended."""
        return self.reading.is_active and not self._snapshot_taken

    def wants_look(self, now_s: float) -> bool:
        """Somebody should look (again) whether the save that is due can be made."""
        return self._is_held_back and now_s >= self.look_first.again_at_s

    @property
    def wants_snapshot(self) -> bool:
        """Training should take the snapshot at its next step."""
        return self.state is _S.ARMED and not self._snapshot_taken

    @property
    def holds_snapshot(self) -> bool:
        """A save is in progress whose snapshot exists."""
        return self._snapshot_taken

    @property
    def due_s(self) -> float:
        """When the next save is due."""
        return self._schedule.due_s

    @property
    def started_s(self) -> float:
        """When the attempt began."""
        return self._schedule.started_s

    @property
    def num_skipped(self) -> int:
        """Saves that were due and not made: given up, or another one was in flight."""
        return self._schedule.num_skipped

    # -- time --------------------------------------------------------------------------------------------------

    def tick(self, now_s: float) -> None:
        """Time has passed."""
        self.reading.tick(now_s)
        if self.state in ENDED and (self._local or self._release_is_pointless(now_s)):
            self.released(now_s)
        if self.state is _S.IDLE and now_s >= self.due_s:
            self._to(_S.DUE)
        if self.state in IN_PROGRESS and self._has_lapsed(now_s):
            self._lapse()
        if self.state in (_S.DUE, _S.WAITING) and not self._giving_up:
            self._consider_giving_up(now_s)
        may_begin = not (self._giving_up or self._is_held_back or self._stands_back)
        if self.state in (_S.DUE, _S.WAITING) and may_begin:
            self._consider_fallback(now_s)
        is_busy = self.state is not _S.IDLE or self.notice is not None or self.reading.is_active
        self.rereading.tick(now_s, gives_way=is_busy)

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
        if notice is not None and self._notice_heard and now_s >= notice.give_up_at_s:
            self._give_up_notice(notice, GiveUp.TOO_LATE, None, now_s)

    def _give_up_notice(self, notice: Notice, reason: GiveUp, fits_bytes: int | None, now_s: float) -> None:
        """A job that outlives its deadline was told wrongly, and saves then."""
        left_s, again_at_s = notice.deadline_at_s - now_s, max(now_s, notice.deadline_at_s)
        self._give_up(
            GivenUp(reason=reason, left_s=left_s, fits_bytes=fits_bytes, again_at_s=again_at_s), now_s
        )

    def _give_up(self, given_up: GivenUp, now_s: float) -> None:
        """A save that has a snapshot ends when its flush has noticed; one that has not begun is just not made.

        Whoever asked for its place has said by this that no lease is held: nothing is left to be given back.
        """
        self.given_up, self._giving_up = given_up, True
        if not self._snapshot_taken:
            self._schedule.num_skipped += 1
            self.ended(now_s, committed=False)
            self.released(now_s)

    def _consider_fallback(self, now_s: float) -> None:
        governance = self._fallback(now_s)
        if governance is None:
            return
        self.governance = governance
        self._proceed()

    def _fallback(self, now_s: float) -> Governance | None:
        """By what right to go on without an answer, if there is one."""
        if self._local:
            return Governance.LOCAL
        nobody_there = self._silent or not (self._notice_heard or self._snapshot_taken)
        if self._waited_long_enough(now_s) and nobody_there:
            return Governance.UNGOVERNED
        if not self._silent:
            return None
        plan = self.lease_clock.plan
        if plan is None:
            return Governance.UNGOVERNED
        start_s, end_s = self.lease_clock.safe_window()
        if now_s < start_s:
            return None
        return Governance.SAFE_RATE if plan.safe_bytes_per_s > 0 and now_s < end_s else Governance.UNGOVERNED

    def _waited_long_enough(self, now_s: float) -> bool:
        return self.notice is not None and now_s >= self.notice.answer_by_s

    def _proceed(self) -> None:
        """There is a right to go on: snapshot if there is none, else write on."""
        if not self.first_byte:
            self._to(_S.ARMED)
            return
        self._to(_S.READY)
        if self.governance is not Governance.LEASE:
            self._to(_S.FLUSHING)

    def _release_is_pointless(self, now_s: float) -> bool:
        is_late = now_s >= self._ended_s + RELEASE_TRIES_S or self._waited_long_enough(now_s)
        return self.save_fence is None or is_late

    # -- what the coordinator says -----------------------------------------------------------------------------

    def answered(
        self,
        answer: AnyAnswer,
        first_sent_s: float,
        now_s: float,
        *,
        of_read: bool = False,
        of_reread: bool = False,
    ) -> None:
        """Apply an answer. `first_sent_s` is when its request was first sent; `of_read`: for a restore.

        Those to what is read back put off no heartbeat: it takes long, and training goes on meanwhile.
        """
        self.reading.heard(now_s)
        before = self.lease_clock.plan
        self.lease_clock.answered(now_s, answer.plan)
        self._silent, self._retry_at_s = False, 0.0
        self._notice_heard |= self.notice is not None and first_sent_s >= self.notice.since_s
        if answer.plan is not None and self.state is _S.IDLE:
            self._schedule.replanned(before, answer.plan, now_s)
        heartbeat_s = self.lease_clock.plan.heartbeat_s if self.lease_clock.plan else 0.0
        if answer.confirm or not of_reread:
            self._heartbeat_at_s = now_s if answer.confirm else now_s + heartbeat_s
        if self.governance in (Governance.SAFE_RATE, Governance.UNGOVERNED) and self.state in IN_PROGRESS:
            self.governance = (
                Governance.LEASE
            )  # the coordinator is back: nothing but a lease counts from here
            self._lapse()
        if of_reread:
            self.rereading.answered(answer, first_sent_s, now_s)
        elif of_read:
            self.reading.answered(answer, first_sent_s, now_s)
        elif isinstance(answer, Grant) and not self._stands_back:
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
        if self.state in (_S.DUE, _S.WAITING):
            self._proceed()
        if self.state is _S.READY and grant.state is LeaseState.ACTIVE and grant.bytes_per_s > 0:
            self._ready_said = True
            self._to(_S.FLUSHING)

    def _told_to_wait(self, wait: Wait, now_s: float) -> None:
        self._retry_at_s = now_s + wait.retry_after_s
        is_waiting = self.state in (_S.DUE, _S.WAITING) and not self._giving_up
        if wait.reason is WaitReason.WILL_NOT_FIT and self.notice is not None and is_waiting:
            self._give_up_notice(self.notice, GiveUp.WILL_NOT_FIT, wait.fits_bytes, now_s)

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

    def said(self, action: Action, now_s: float) -> None:
        """`action` was answered (whatever the answer)."""
        if action is Action.REGISTER:
            self.registered = True
            self._schedule.registered(now_s)
        elif action is Action.READY:
            self._ready_said = True
        elif action is Action.RELEASE and self.state in ENDED:
            self.released(now_s)
        elif action is Action.RELEASE_READ:
            self.reading.released()
        elif action is Action.RELEASE_REREAD:
            self.rereading.released()

    def unreachable(self, now_s: float, retry_after_s: float) -> None:
        """No answer; try again after `retry_after_s`."""
        self.reading.unheard(now_s)
        self._silent = True
        self._retry_at_s = now_s + retry_after_s
        self._heartbeat_at_s = self._retry_at_s

    def forgotten(self) -> None:
        """The coordinator does not know this attempt (any more): register again."""
        self.registered = False

    # -- what training and the flush say -----------------------------------------------------------------------

    def begin_reading(self, num_bytes: int, now_s: float) -> None:
        """A restore begins. A lease whose snapshot was not taken yet is let go: whoever asks to read says so."""
        if self.wants_snapshot and not self._local:
            self._lapse()
        self._retry_at_s = 0.0
        self.reading.begin(num_bytes, now_s)

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
            self._to(_S.READY)
            if self.governance is not Governance.LEASE:
                self._to(_S.FLUSHING)

    def ended(self, now_s: float, *, committed: bool) -> None:
        """The save has ended, one way or the other."""
        self._ended_s, self._retry_at_s = now_s, 0.0
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

    def hurry(self, now_s: float, *, deadline_at_s: float) -> None:
        """A notice: save as soon as possible. The save that is in progress will do."""
        if self.notice is None:
            self.notice = Notice(since_s=now_s, deadline_at_s=deadline_at_s)
            self._notice_heard, self._retry_at_s = False, 0.0
            self.rereading.forget()
            if self.state is _S.IDLE:
                self._schedule.due_s = now_s

    def set_need(self, need_s: float) -> None:
        """How long the save of a notice takes from a grant on, at the job's own full speed: less as it goes on."""
        if self.notice is not None:
            self.notice = replace(self.notice, need_s=need_s)

    def set_own_period(self, own_period_s: float) -> None:
        """What was measured changed the period that the job would choose alone; counts from the next save on."""
        self._schedule.own_period_s = own_period_s

    def _to(self, state: PacerState) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state} -> {state}"
        self.state = state
