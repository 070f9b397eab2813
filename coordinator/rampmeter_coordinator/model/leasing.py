"""Requests that speak of slots and leases, what time does to both, who is told what follows. Somebody always starts.

`queueing` says who is granted, `rates` how fast, `holding` gives and ends leases, `answering` finds the words.
"""

from rampmeter.core.fields import MAX_SECONDS
from rampmeter.core.messages import (
    GoneReason,
    Kind,
    LeaseState,
    Ready,
    Release,
    Renew,
    SlotRequest,
    WaitReason,
)
from rampmeter_coordinator.model import counting, estimates, precedence, reporting
from rampmeter_coordinator.model.answering import Answering
from rampmeter_coordinator.model.holding import Holding
from rampmeter_coordinator.model.particulars import Turn
from rampmeter_coordinator.model.pool import HOLD_RENEWAL_S, HOLD_SLOT_S
from rampmeter_coordinator.model.progress import Progress, Verdict
from rampmeter_coordinator.model.queueing import Queueing
from rampmeter_coordinator.model.rates import Rates
from rampmeter_coordinator.model.records import Held, Job, Lease, Waiter, turn_of
from rampmeter_coordinator.model.state import PoolState

HOLD_WHILE_SETTLING_S = 2.0
"""A renewal is held no longer than this where the storage's capacity is just being found out."""

NEW_PACE = 0.05
"""A writer whose pace has changed by less ends about when it was believed to."""


class Leasing:
    """The leases and waiters of one pool."""

    def __init__(self, state: PoolState, rates: Rates, answering: Answering, holding: Holding) -> None:
        self._state = state
        self._rates = rates
        self._answering = answering
        self._holding = holding
        self._queueing = Queueing(state, rates, answering, holding.grant)

    # -- requests ----------------------------------------------------------------------------------------------

    def ask(self, job: Job, request: SlotRequest, now_s: float) -> None:
        """May I checkpoint now? Held while its turn is near; `rebalance` grants."""
        if job.lease is not None:  # whoever asks holds nothing
            self._holding.end(job, LeaseState.EXPIRED, GoneReason.EXPIRED, now_s)
        turn = turn_of(job)
        if not request.started:
            self._new_save(turn)
        known_s = counting.waits_since(job, now_s)
        since_s = now_s if known_s is None or _is_background(request) else known_s
        turn.queued_since_s, turn.asked_s = None if _is_background(request) else since_s, now_s
        waiter = job.waiter = _waiter(job, request, since_s, now_s)
        job.held = Held(seq=request.seq, received_s=now_s, until_s=now_s + HOLD_SLOT_S)
        if not self._state.enforces(job):
            self._state.count("would_wait", int(self._rates.would_wait(job, waiter)))
            self._holding.grant(job, waiter, now_s)
            return
        if counting.needs_contact(job, now_s) and waiter.deadline_at_s is None:
            self._answering.wait(job, 0.0, WaitReason.CONFIRM, now_s)
            return
        if self._rates.has_all_room_for(job, waiter, self._state.config.lane(waiter.kind)):
            self._holding.grant(job, waiter, now_s)
            return
        self._state.waiting[job.uid] = job
        if not self._queueing.joins(job, waiter, now_s):
            self._state.must_walk = True
        self._state.unsettled |= self._rates.somebody_gives_way()
        if job.held is not None:
            self._state.touch(job, now_s)

    def _new_save(self, turn: Turn) -> None:
        turn.save_since_s = None
        if turn.notice_served:  # the attempt was about to be taken away, and just goes on
            turn.notice_served = False
            turn.num_false_alarms += 1
            self._state.count("false_alarms")

    def ready(self, job: Job, request: Ready, now_s: float) -> None:
        """The first byte is in hand: its rate if there is one, else renewals are held until there is."""
        lease = job.lease
        if lease is None or lease.fence != request.fence:
            self._answering.gone(job, request.seq, now_s, now_s)
            return
        estimates.ready(lease, now_s)
        lease.ready, lease.ready_by_s, lease.ready_at_s = True, None, None
        lease.num_bytes = lease.num_bytes if request.num_bytes is None else request.num_bytes
        turn_of(job).num_not_ready = 0
        self._holding.answer_with_rate(job, Held(seq=request.seq, received_s=now_s, until_s=now_s), now_s)

    def renew(self, job: Job, request: Renew, now_s: float) -> None:
        """The lease goes on: answered at once where its rate changes, else at the end of the hold."""
        if job.lease is None and self._state.in_grace and request.held_bytes_per_s > 0:
            self._holding.recreate(job, request, now_s)
        elif job.lease is None or job.lease.fence != request.fence:
            self._answering.gone(job, request.seq, now_s, now_s)
            return
        elif self._state.in_grace:
            self._holding.hold_no_more(job.lease, request)
        assert job.lease is not None
        rate = reporting.rate_since_last(job.lease)
        self.learn(job, job.lease, request, now_s)
        if self._is_hopeless(job, job.lease, request, rate, now_s):
            job.held = Held(seq=request.seq, received_s=now_s, until_s=now_s)
            self._holding.revoke(job, GoneReason.NO_PROGRESS, now_s)
            return
        hold_s = min(HOLD_RENEWAL_S, self._state.config.ttl_s / 3.0)
        if self._state.capacity.is_settling(now_s):
            hold_s = min(hold_s, HOLD_WHILE_SETTLING_S)
        if now_s + 2.0 * hold_s >= counting.lease_until(job) or counting.needs_contact(job, now_s):
            hold_s = 0.0
        job.held = Held(seq=request.seq, received_s=now_s, until_s=now_s + hold_s)
        self._state.touch(job, now_s)
        if not self._state.unsettled and self._answering.should_hear(job, job.lease, now_s):
            self._answering.offer(job, job.lease, now_s)
        self._answer_if_over(job, now_s)

    def learn(self, job: Job, lease: Lease, request: Renew | Release, now_s: float) -> None:
        """What the writer did since its last report: how far it is, and what that says about the storage."""
        state, pace = self._state, lease.achieved_bytes_per_s
        goes_on = lease.goes_on
        is_absurd = estimates.is_absurd_report(job, lease, request, now_s)
        report = reporting.since_last(lease, request, now_s)
        if is_absurd:
            lease.achieved_bytes_per_s = pace
            estimates.doubt(job, job.turn.save if job.turn else None)
            state.count("absurd")
            return
        if isinstance(request, Release):
            self._note_ended(lease, request, goes_on, now_s)
        if abs(lease.achieved_bytes_per_s - pace) > NEW_PACE * pace:
            self._foresee_anew()
        if report is None or state.config.lane(lease.kind) is not Kind.WRITE or not state.enforces(job):
            return
        before = (state.capacity.cap_bytes_per_s, state.capacity.slow_maximum(job.uid))
        unheard = state.silent_elsewhere(Kind.WRITE) + state.old_counted(Kind.WRITE, now_s)
        if state.capacity.reported(job.uid, report, now_s, silent_bytes_per_s=unheard):
            self._hear_the_others(job, now_s)
        state.unsettled |= before != (state.capacity.cap_bytes_per_s, state.capacity.slow_maximum(job.uid))

    def _note_ended(self, lease: Lease, request: Release, goes_on: bool, now_s: float) -> None:
        """Short saves are over before the next renewal of one that stands still: they are remembered for it."""
        lease.progress.ended(request.done_bytes, lease.granted_s, now_s, goes_on=goes_on)
        if lease.progress.moved_s is not None:
            self._state.last_ended[self._state.config.lane(lease.kind)] = lease.progress

    def _hear_the_others(self, job: Job, now_s: float) -> None:
        """Answer all renewals that are held: who is answered reports again at once."""
        for other in self._state.holders(Kind.WRITE):
            if other is not job and other.held is not None and other.lease is not None and other.lease.ready:
                other.held.until_s = now_s
                self._state.unsettled = True

    def _is_hopeless(self, job: Job, lease: Lease, request: Renew, rate: int, now_s: float) -> bool:
        """Whether the writer has stood still for so long, while others write, that its lease is taken back.

        `rate` was in force since it was seen last.
        """
        lane = self._state.config.lane(lease.kind)
        was_cut = lease.progress.is_cut
        verdict = lease.progress.renewed(
            done_bytes=request.done_bytes,
            num_bytes=lease.num_bytes,
            bytes_per_s=rate,
            now_s=now_s,
            others=self._others(job, lane, lease.progress.seen_s, now_s),
        )
        self._state.unsettled |= was_cut != lease.progress.is_cut
        committing = lease.num_bytes is not None and request.done_bytes >= lease.num_bytes
        return verdict is Verdict.REVOKED and not committing

    def _others(self, job: Job, lane: Kind, since_s: float | None, now_s: float) -> list[Progress]:
        """Those that hold a rate of the lane, and the newest that ended since: whoever stands still is not that one."""
        found = [
            other.lease.progress
            for other in self._state.holders(lane)
            if other is not job and other.lease is not None and counting.leased(other, now_s)
        ]
        ended = self._state.last_ended.get(lane)
        return [*found, ended] if ended is not None and ended.ended_after(since_s) else found

    def confirmed(self, job: Job, ack: int, now_s: float) -> None:
        """The agent has applied the answer to `ack` last; a lease that it therefore does not hold is over."""
        from_old_shares = bool(job.old_shares)
        if counting.confirm(job, ack):
            self._holding.moved(job, also_others=from_old_shares)
        if job.lease is not None and now_s >= counting.lease_until(job):
            self._holding.end(job, LeaseState.EXPIRED, GoneReason.EXPIRED, now_s)

    def withdraw(self, job: Job) -> None:
        """The client of the held request has gone."""
        job.held = job.waiter = None
        self._state.waiting.pop(job.uid, None)

    # -- time --------------------------------------------------------------------------------------------------

    def time_passed(self, job: Job, now_s: float) -> None:
        """A time of this job has come: ends what is over and answers what was held long enough."""
        lease = job.lease
        if lease is not None and lease.ready_at_s is not None:
            self._foresee_anew()
        if lease is not None and now_s >= lease.offers[0].until_s:
            self._holding.moved(job)
        if lease is not None and all(now_s >= offer.until_s for offer in lease.offers):
            self._holding.end(job, LeaseState.EXPIRED, GoneReason.EXPIRED, now_s)
        elif lease is not None and lease.ready_by_s is not None and now_s >= lease.ready_by_s:
            turn_of(job).num_not_ready += 1
            self._holding.end(job, LeaseState.REVOKED, GoneReason.NOT_READY, now_s)
        self._answer_if_over(job, now_s)

    def rebalance(self, now_s: float) -> None:
        """Send what must be said early: lowerings at once, worthwhile raises, grants to waiters that fit."""
        state = self._state
        if not (state.unsettled or state.must_walk or now_s >= state.look_again_s):
            return
        if state.unsettled:
            if state.config.shared_reads:
                self._make_room(now_s)
            self._speak(now_s)
        state.must_walk = False
        while True:
            may_go_on = self._queueing.serve(now_s)
            if not state.unsettled:
                return
            self._speak(
                now_s
            )  # somebody has started who may come before others: they are told in the same step
            if not may_go_on:
                return

    def _foresee_anew(self) -> None:
        """Somebody writes at another pace, or is ready later, than was believed: others are armed at another time."""
        if self._state.config.shared_reads:
            self._state.unsettled = True
        elif self._state.waiting:
            self._state.must_walk = True

    def _make_room(self, now_s: float) -> None:
        """On a shared budget: saves that are cheaper given up than finished while blocked reads wait."""
        if self._state.old_counted(Kind.WRITE, now_s):
            return  # nobody is given up while room from the last one is on its way
        holders = self._state.holders(Kind.WRITE)
        reads = [job for job in holders if job.lease is not None and precedence.is_blocked_read(job.lease)]
        price, budget = self._queueing.live_price(now_s), self._state.budget(Kind.WRITE)
        for job in holders:
            is_save = job.lease is not None and job.lease.kind is Kind.WRITE and job.lease.ready
            if is_save and precedence.pays_to_give_up(job, reads, price, budget, now_s):
                self._holding.revoke(job, GoneReason.MAKE_ROOM, now_s)
                return

    def _speak(self, now_s: float) -> None:
        """Tell everybody whose time has come or whose rate has changed, as the targets are now."""
        self._rates.work_out(now_s)
        self._state.unsettled = False
        for job in list(self._state.live.values()):
            lease = job.lease
            if job.held is None or lease is None:
                continue
            if now_s >= job.held.until_s or self._answering.should_hear(job, lease, now_s):
                self._answering.offer(job, lease, now_s)

    def _answer_if_over(self, job: Job, now_s: float) -> None:
        held = job.held
        if held is None or now_s < held.until_s:
            return
        if job.waiter is not None:
            self._answering.wait(job, 0.0, job.waiter.reason, now_s)
        elif job.lease is not None:
            if not self._state.unsettled:  # else all are told what moved in a moment
                self._answering.offer(job, job.lease, now_s)
        else:
            self._answering.gone(job, held.seq, held.received_s, now_s)

    def live_price(self, now_s: float) -> float:
        """The largest waiting bid, in GPU-seconds per byte."""
        return self._queueing.live_price(now_s)


def _is_background(request: SlotRequest) -> bool:
    """Nobody waits for it: not even the job itself, which may have waited for a save before or will soon."""
    return request.background and request.kind is Kind.READ


def _waiter(job: Job, request: SlotRequest, since_s: float, now_s: float) -> Waiter:
    known_since_s = job.registered_s if job.snapshot_s is None else job.snapshot_s
    ready_in_s = (job.known.lead_s or 1.0) if request.ready_in_s is None else request.ready_in_s
    return Waiter(
        since_s=since_s,
        unsaved_since_s=known_since_s if request.age_s is None else now_s - request.age_s,
        kind=request.kind,
        reason=WaitReason.QUEUE,
        num_bytes=job.num_bytes if request.num_bytes is None else request.num_bytes,
        max_bytes_per_s=request.max_bytes_per_s,
        ready_in_s=ready_in_s,
        started=request.started,
        deadline_at_s=_deadline(turn_of(job), request, now_s),
        background=_is_background(request),
    )


def _deadline(turn: Turn, request: SlotRequest, now_s: float) -> float | None:
    """When an urgent save must be durable; None for one that waits like all others."""
    if not request.urgent or request.kind is not Kind.WRITE or turn.num_false_alarms:
        return None
    return MAX_SECONDS if request.deadline_s is None else now_s + request.deadline_s
