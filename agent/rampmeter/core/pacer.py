"""What an attempt says to its coordinator, and when: for its saves, its restores, and what it reads back. Pure.

Built on the moves of its saves (`savemachine`: one object owns them and the words). A restore (`reading`) and what is
read back beside training (`rereading`) have moves of their own; `talk` knows when to speak at all. Events come in as
method calls with `now_s`; what to do comes out of `next_action`, and `wake_at` says when to look again. The keeper does
the I/O.

A job has one lease. While it restores, no save is asked for, since training stands still; a flush that goes on comes
first, and the restore waits for it. What is read back gives way to both.
"""

import math
from dataclasses import replace

from rampmeter.core.leaseclock import LeaseClock
from rampmeter.core.lifecycle import ENDED, IN_PROGRESS, TRANSITIONS, WANTED, Action, Governance, PacerState
from rampmeter.core.messages import AnyAnswer, Grant
from rampmeter.core.notice import Notice
from rampmeter.core.reading import Reading
from rampmeter.core.rereading import Rereading
from rampmeter.core.savemachine import SaveMachine
from rampmeter.core.schedule import Schedule
from rampmeter.core.talk import Talk

__all__ = ["TRANSITIONS", "Action", "Governance", "Pacer", "PacerState"]

_S = PacerState

_AFTER_HEARTBEATS = frozenset({Action.ASK_REREAD, Action.RENEW_REREAD})
"""Said for hours perhaps, while training goes on; all else is soon over."""


class Pacer(SaveMachine):
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
        schedule = Schedule(now_s=now_s, draw=draw, own_period_s=own_period_s, plan=lease_clock.plan)
        talk = Talk(now_s=now_s, registered=local)
        super().__init__(lease_clock, schedule=schedule, talk=talk, looks_first=looks_first, local=local)
        self.reading = Reading(local=local, delay_s=read_unasked_s)
        self.rereading = Rereading(local=local)

    # -- what to do --------------------------------------------------------------------------------------------

    def next_action(self, now_s: float) -> Action:
        """What to say now. Call `tick` first."""
        if self._local:
            return Action.NOTHING
        may_beat = self._talk.may_beat(now_s)
        if self._talk.may_ask(now_s):
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
        if self.state in WANTED:
            return Action.NOTHING if self._giving_up or self._is_held_back else Action.ASK
        if self.state in IN_PROGRESS and self.governance is Governance.LEASE:
            return Action.READY if self.state is _S.READY and not self._ready_said else Action.RENEW
        return self.rereading.next_action(now_s)

    def wake_at(self, now_s: float) -> float:
        """The next time at which `tick` or `next_action` may have something new; infinity if never."""
        times = [*self._talk.changes(), *self.lease_clock.changes(), *self.reading.changes()]
        times += self.rereading.changes()
        if self.state is _S.IDLE:
            times.append(self.due_s)
        if self._is_held_back:
            times.append(self.look_first.again_at_s)
        if self.notice is not None:
            times += [self.notice.answer_by_s, self.notice.give_up_at_s]
        return min((t for t in times if t > now_s), default=math.inf)

    @property
    def _stands_back(self) -> bool:
        """A restore is going on, and no snapshot exists yet: there is nothing to save before it has ended."""
        return self.reading.is_active and not self._snapshot_taken

    def wants_look(self, now_s: float) -> bool:
        """Somebody should look (again) whether the save that is due can be made."""
        return self._is_held_back and now_s >= self.look_first.again_at_s

    @property
    def registered(self) -> bool:
        """The coordinator knows this attempt, as far as it has told."""
        return self._talk.registered

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
        self._pass_time(now_s)
        if not self._stands_back:
            self._consider_fallback(now_s)
        is_busy = self.state is not _S.IDLE or self.notice is not None or self.reading.is_active
        self.rereading.tick(now_s, gives_way=is_busy)

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
        """Apply an answer. `first_sent_s` is when its request was first sent; `of_read`: for a restore."""
        self.reading.heard(now_s)
        before = self.lease_clock.plan
        self.lease_clock.answered(now_s, answer.plan)
        if self.notice is not None:
            self.notice = self.notice.answered(first_sent_s)
        if answer.plan is not None and self.state is _S.IDLE:
            self._schedule.replanned(before, answer.plan, now_s)
        self._talk.answered(now_s, self.lease_clock.plan, confirm=answer.confirm, of_reread=of_reread)
        self._hears_again()
        if of_reread:
            self.rereading.answered(answer, first_sent_s, now_s)
        elif of_read:
            self.reading.answered(answer, first_sent_s, now_s)
        elif not (isinstance(answer, Grant) and self._stands_back):
            self._apply(answer, first_sent_s, now_s)

    def said(self, action: Action, now_s: float) -> None:
        """`action` was answered (whatever the answer)."""
        if action is Action.REGISTER:
            self._talk.registered = True
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
        self._talk.unanswered(now_s, retry_after_s)

    def forgotten(self) -> None:
        """The coordinator does not know this attempt (any more): register again."""
        self._talk.registered = False

    # -- what the job says -------------------------------------------------------------------------------------

    def begin_reading(self, num_bytes: int, now_s: float) -> None:
        """A restore begins. A lease whose snapshot was not taken yet is let go: whoever asks to read says so."""
        if self.wants_snapshot and not self._local:
            self._lapse()
        self._talk.hurries()
        self.reading.begin(num_bytes, now_s)

    def hurry(self, now_s: float, *, deadline_at_s: float) -> None:
        """A notice: save as soon as possible. The save that is in progress will do."""
        if self.notice is None:
            self.notice = Notice(since_s=now_s, deadline_at_s=deadline_at_s)
            self._talk.hurries()
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
