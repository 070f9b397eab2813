"""The life of one save after another: when to ask, when to snapshot, what to say next. Pure; the keeper does the I/O.

    IDLE -> DUE -> WAITING -> ARMED -> READY -> FLUSHING -> COMMITTED | ABORTED -> IDLE
                      ^_________|________|_________|   a lapsed lease: rate 0, ask again, keep the snapshot

Slot first, snapshot after: the snapshot is taken only in ARMED. Events come in as method calls with `now_s`; what to
do comes out of `next_action`, and `wake_at` says when to look again. Never waits for the coordinator for ever: a silent
one is replaced by the safe rate once it is usable, and where there is no plan at all by an ungoverned save.
"""

import math
from enum import StrEnum

from rampmeter.core import phase
from rampmeter.core.leaseclock import LeaseClock
from rampmeter.core.messages import AnyAnswer, Fence, Gone, Grant, LeaseState, Plan, Wait

RELEASE_TRIES_S = 30.0
"""A release that nobody hears is given up after this: the lease ends by itself."""

URGENT_WAIT_S = 2.0
"""A save with a deadline never waits longer than this for an answer."""


class PacerState(StrEnum):
    IDLE = "idle"
    DUE = "due"
    WAITING = "waiting"
    ARMED = "armed"
    READY = "ready"
    FLUSHING = "flushing"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Governance(StrEnum):
    """By what right a save writes."""

    LEASE = "lease"
    SAFE_RATE = "safe_rate"
    UNGOVERNED = "ungoverned"
    LOCAL = "local"


class Action(StrEnum):
    """What to say to the coordinator next."""

    NOTHING = "nothing"
    REGISTER = "register"
    HEARTBEAT = "heartbeat"
    ASK = "ask"
    READY = "ready"
    RENEW = "renew"
    RELEASE = "release"


_S = PacerState
TRANSITIONS: dict[PacerState, frozenset[PacerState]] = {
    _S.IDLE: frozenset({_S.DUE}),
    _S.DUE: frozenset({_S.WAITING, _S.ARMED}),
    _S.WAITING: frozenset({_S.ARMED, _S.READY, _S.FLUSHING, _S.COMMITTED, _S.ABORTED}),
    _S.ARMED: frozenset({_S.WAITING, _S.READY, _S.ABORTED}),
    _S.READY: frozenset({_S.WAITING, _S.FLUSHING, _S.COMMITTED, _S.ABORTED}),
    _S.FLUSHING: frozenset({_S.WAITING, _S.COMMITTED, _S.ABORTED}),
    _S.COMMITTED: frozenset({_S.IDLE}),
    _S.ABORTED: frozenset({_S.IDLE}),
}
_IN_PROGRESS = frozenset({_S.ARMED, _S.READY, _S.FLUSHING})
_ENDED = frozenset({_S.COMMITTED, _S.ABORTED})


class Pacer:
    """One per attempt. `local` means that there is no coordinator and never will be."""

    def __init__(
        self, lease_clock: LeaseClock, *, now_s: float, draw: float, own_period_s: float, local: bool
    ) -> None:
        """`draw` in [0, 1) places the first save; `own_period_s` is the interval where there is no plan."""
        self.lease_clock = lease_clock
        self.state = _S.IDLE
        self.governance = Governance.LOCAL if local else Governance.LEASE
        self.registered = local
        self.first_byte = False
        self.snapshot_s: float | None = None
        self.num_skipped = 0
        self.num_ungoverned = 0
        self.urgent_since_s: float | None = None
        self.save_fence: Fence | None = None
        self._local = local
        self._started_s = self._registered_s = now_s
        self._draw = draw
        self._own_period_s = own_period_s
        self._num_saves = 0
        self._snapshot_taken = False
        self._ready_said = False
        self._retry_at_s = 0.0
        self._heartbeat_at_s = now_s
        self._silent = False
        self._ended_s = 0.0
        self._due_s = self._first_due(lease_clock.plan.interval_s if lease_clock.plan else own_period_s)

    def _first_due(self, interval_s: float) -> float:
        return self._started_s + self._draw * min(interval_s, phase.FIRST_SAVE_WITHIN_S)

    # -- what to do --------------------------------------------------------------------------------------------

    def next_action(self, now_s: float) -> Action:
        """What to say now. Call `tick` first."""
        if self._local:
            return Action.NOTHING
        if now_s >= self._retry_at_s:
            action = self._pressing_action()
            if action is not Action.NOTHING:
                return action
        may_beat = self.registered and now_s >= self._heartbeat_at_s
        return Action.HEARTBEAT if may_beat else Action.NOTHING

    def _pressing_action(self) -> Action:
        if not self.registered:
            return Action.REGISTER
        if self.state in _ENDED:
            return Action.RELEASE
        if self.state in (_S.DUE, _S.WAITING):
            return Action.ASK
        if self.state in _IN_PROGRESS and self.governance is Governance.LEASE:
            return Action.READY if self.state is _S.READY and not self._ready_said else Action.RENEW
        return Action.NOTHING

    def wake_at(self, now_s: float) -> float:
        """The next time at which `tick` or `next_action` may have something new; infinity if never."""
        times = [self._retry_at_s, self._heartbeat_at_s, *self.lease_clock.changes()]
        if self.state is _S.IDLE:
            times.append(self._due_s)
        if self.urgent_since_s is not None:
            times.append(self.urgent_since_s + URGENT_WAIT_S)
        return min((t for t in times if t > now_s), default=math.inf)

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
        return self._due_s

    # -- time --------------------------------------------------------------------------------------------------

    def tick(self, now_s: float) -> None:
        """Time has passed."""
        if self.state in _ENDED and (self._local or self._release_is_pointless(now_s)):
            self.released(now_s)
        if self.state is _S.IDLE and now_s >= self._due_s:
            self._to(_S.DUE)
        if self.state in _IN_PROGRESS and self._has_lapsed(now_s):
            self._lapse()
        if self.state in (_S.DUE, _S.WAITING):
            self._consider_fallback(now_s)

    def _has_lapsed(self, now_s: float) -> bool:
        return self.governance is Governance.LEASE and self.lease_clock.lapsed(now_s)

    def _lapse(self) -> None:
        """Keep the snapshot, write nothing, ask again."""
        self.lease_clock.dropped()
        self._ready_said = False
        self._to(_S.WAITING)

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
        if self._waited_long_enough(now_s) and (self._silent or not self._snapshot_taken):
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
        return self.urgent_since_s is not None and now_s >= self.urgent_since_s + URGENT_WAIT_S

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

    def answered(self, answer: AnyAnswer, first_sent_s: float, now_s: float) -> None:
        """Apply an answer. `first_sent_s` is when its request was first sent."""
        before = self.lease_clock.plan
        self.lease_clock.answered(now_s, answer.plan)
        self._silent, self._retry_at_s = False, 0.0
        if answer.plan is not None:
            self._replan(before, answer.plan, now_s)
        heartbeat_s = self.lease_clock.plan.heartbeat_s if self.lease_clock.plan else 0.0
        self._heartbeat_at_s = now_s if answer.confirm else now_s + heartbeat_s
        if self.governance in (Governance.SAFE_RATE, Governance.UNGOVERNED) and self.state in _IN_PROGRESS:
            self.governance = (
                Governance.LEASE
            )  # the coordinator is back: nothing but a lease counts from here
            self._lapse()
        if isinstance(answer, Grant):
            self._granted(answer, first_sent_s)
        elif isinstance(answer, Gone):
            self._gone()
        elif isinstance(answer, Wait):
            self._retry_at_s = now_s + answer.retry_after_s

    def _granted(self, grant: Grant, first_sent_s: float) -> None:
        self.save_fence = grant.fence
        if self.state in _ENDED:
            return  # the save ended while the grant was on its way: the release that follows gives it back
        self.governance = Governance.LEASE
        self.lease_clock.granted(grant, first_sent_s)
        if self.state in (_S.DUE, _S.WAITING):
            self._proceed()
        if self.state is _S.READY and grant.state is LeaseState.ACTIVE and grant.bytes_per_s > 0:
            self._ready_said = True
            self._to(_S.FLUSHING)

    def _gone(self) -> None:
        if self.state in _IN_PROGRESS:
            self._lapse()

    def _replan(self, before: Plan | None, plan: Plan, now_s: float) -> None:
        if self.state is not _S.IDLE:
            return
        if self._num_saves == 0:
            self._due_s = self._first_due(plan.interval_s)
        elif before is not None and before.interval_s != plan.interval_s:
            self._due_s = phase.rescaled(self._due_s, now_s, before.interval_s, plan.interval_s)

    def said(self, action: Action, now_s: float) -> None:
        """`action` was answered (whatever the answer)."""
        if action is Action.REGISTER:
            self.registered, self._registered_s = True, now_s
        elif action is Action.READY:
            self._ready_said = True
        elif action is Action.RELEASE and self.state in _ENDED:
            self.released(now_s)

    def unreachable(self, now_s: float, retry_after_s: float) -> None:
        """No answer; try again after `retry_after_s`."""
        self._silent = True
        self._retry_at_s = now_s + retry_after_s
        self._heartbeat_at_s = self._retry_at_s

    def forgotten(self) -> None:
        """The coordinator does not know this attempt (any more): register again."""
        self.registered = False

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
            self._to(_S.READY)
            if self.governance is not Governance.LEASE:
                self._to(_S.FLUSHING)

    def ended(self, now_s: float, *, committed: bool) -> None:
        """The save has ended, one way or the other."""
        self._ended_s, self._retry_at_s = now_s, 0.0
        self.urgent_since_s = None
        if self.governance is Governance.UNGOVERNED:
            self.num_ungoverned += 1
        self._to(_S.COMMITTED if committed and self.state is not _S.ARMED else _S.ABORTED)

    def released(self, now_s: float) -> None:
        """The lease is given back, or was never held: wait for the next save."""
        self.lease_clock.dropped()
        self._to(_S.IDLE)
        self._num_saves += 1
        self._snapshot_taken = self.first_byte = self._ready_said = False
        self.save_fence = None
        self.governance = Governance.LOCAL if self._local else Governance.LEASE
        self._schedule_next(now_s)

    def hurry(self, now_s: float) -> None:
        """A notice: save as soon as possible. The save that is in progress will do."""
        if self.urgent_since_s is None:
            self.urgent_since_s, self._retry_at_s = now_s, 0.0
            if self.state is _S.IDLE:
                self._due_s = now_s

    def set_own_period(self, own_period_s: float) -> None:
        """What was measured changed the period that the job would choose alone; counts from the next save on."""
        self._own_period_s = own_period_s

    def _schedule_next(self, now_s: float) -> None:
        plan, snapshot_s = self.lease_clock.plan, self.snapshot_s or now_s
        period_s = plan.request_after_s if plan else self._own_period_s
        due_s = snapshot_s + period_s
        if plan is not None and self._num_saves == 1:
            due_s = phase.due_after_registration(
                self._registered_s, plan.phase_offset_s, plan.interval_s, now_s
            )
        if self.urgent_since_s is not None:  # the notice came when the save had just ended
            due_s = now_s
        while due_s < now_s:  # due while one was in flight: skipped, never queued
            self.num_skipped += 1
            due_s += period_s
        self._due_s = due_s

    def _to(self, state: PacerState) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state} -> {state}"
        self.state = state
