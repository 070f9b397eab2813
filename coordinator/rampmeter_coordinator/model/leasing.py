"""Slots and leases: who is granted, who writes how fast, when a lease ends. Somebody always starts.

What is given out in sum, as `counting` counts it, never passes the budget: a raise takes only what is free of all that
may still be in use; a lowering is sent at once and frees nothing before it is confirmed or its lease has expired.
"""

from rampmeter.core.messages import (
    Fence,
    Gone,
    GoneReason,
    Grant,
    Kind,
    LeaseState,
    RateReason,
    Ready,
    Renew,
    SlotRequest,
    Wait,
    WaitReason,
)
from rampmeter_coordinator.model import admission, counting
from rampmeter_coordinator.model.pool import HOLD_RENEWAL_S, HOLD_SLOT_S, START_WITHIN_S
from rampmeter_coordinator.model.records import Held, Job, Lease, Offer, Waiter
from rampmeter_coordinator.model.registry import Registry
from rampmeter_coordinator.model.state import PoolState

RAISE_SHARE = 0.01
"""Raises below this share of the capacity wait for the end of the hold."""

MAX_DOUBLINGS = 4
"""An armed lease is taken back after max(60 s, 2 x lead time), doubled per miss up to 16 times."""

MAX_RETRY_S = 60.0


class Leasing:
    """The leases and waiters of one pool."""

    def __init__(self, state: PoolState, registry: Registry) -> None:
        self._state = state
        self._registry = registry

    # -- requests ----------------------------------------------------------------------------------------------

    def ask(self, job: Job, request: SlotRequest, now_s: float) -> None:
        """May I checkpoint now? Held while its turn is near; `rebalance` grants."""
        if job.lease is not None:  # whoever asks holds nothing
            self.end(job, LeaseState.EXPIRED, GoneReason.EXPIRED, now_s)
        since_s = counting.waits_since(job, now_s)
        job.queued_since_s = now_s if since_s is None else since_s
        job.asked_s = now_s
        job.waiter = _waiter(job, request, job.queued_since_s)
        job.held = Held(seq=request.seq, received_s=now_s, until_s=now_s + HOLD_SLOT_S)
        self._state.unsettled = True
        self._state.waiting[job.uid] = job
        if self._needs_contact(job, now_s):
            self._wait(job, 0.0, WaitReason.CONFIRM, now_s)
        else:
            self._state.touch(job, now_s)

    def ready(self, job: Job, request: Ready, now_s: float) -> None:
        """The first byte is in hand: its rate if there is one, else renewals are held until there is."""
        lease = job.lease
        if lease is None or lease.fence != request.fence:
            self._gone(job, request.seq, now_s)
            return
        lease.ready, lease.ready_by_s = True, None
        self._state.unsettled = True
        lease.num_bytes = lease.num_bytes if request.num_bytes is None else request.num_bytes
        job.num_not_ready = 0
        job.held = Held(seq=request.seq, received_s=now_s, until_s=now_s)
        self._offer(job, lease, self._state.config.ttl_s, now_s)

    def renew(self, job: Job, request: Renew, now_s: float) -> None:
        """The lease goes on: answered at once where its rate changes, else at the end of the hold."""
        if job.lease is None and self._state.in_grace and request.held_bytes_per_s > 0:
            self._recreate(job, request, now_s)
        elif job.lease is None or job.lease.fence != request.fence:
            self._gone(job, request.seq, now_s)
            return
        assert job.lease is not None
        _note_progress(job.lease, request, now_s)
        hold_s = min(HOLD_RENEWAL_S, self._state.config.ttl_s / 3.0)
        if now_s + 2.0 * hold_s >= counting.lease_until(job) or self._needs_contact(job, now_s):
            hold_s = 0.0
        self._state.unsettled = True
        job.held = Held(seq=request.seq, received_s=now_s, until_s=now_s + hold_s)
        self._state.touch(job, now_s)
        self._answer_if_over(job, now_s)

    def confirmed(self, job: Job, ack: int, now_s: float) -> None:
        """The agent has applied the answer to `ack` last; a lease that it therefore does not hold is over."""
        counting.confirm(job, ack)
        if job.lease is not None:
            self._state.unsettled = True
            if now_s >= counting.lease_until(job):
                self.end(job, LeaseState.EXPIRED, GoneReason.EXPIRED, now_s)

    def withdraw(self, job: Job) -> None:
        """The client of the held request has gone."""
        job.held = job.waiter = None
        self._state.waiting.pop(job.uid, None)

    # -- time --------------------------------------------------------------------------------------------------

    def time_passed(self, job: Job, now_s: float) -> None:
        """A time of this job has come: ends what is over and answers what was held long enough."""
        lease = job.lease
        self._state.unsettled |= lease is not None
        if lease is not None and all(now_s >= offer.until_s for offer in lease.offers):
            self.end(job, LeaseState.EXPIRED, GoneReason.EXPIRED, now_s)
        elif lease is not None and lease.ready_by_s is not None and now_s >= lease.ready_by_s:
            job.num_not_ready += 1
            self.end(job, LeaseState.REVOKED, GoneReason.NOT_READY, now_s)
        self._answer_if_over(job, now_s)

    def rebalance(self, now_s: float) -> None:
        """Send what must be said early: lowerings at once, worthwhile raises, grants to waiters that fit."""
        if not self._state.unsettled:
            return
        self._state.unsettled = False
        targets = self._targets(now_s)
        for job in list(self._state.live.values()):
            lease = job.lease
            if lease is not None and lease.ready and job.held is not None:
                self._speak_early(job, lease, targets.get(job.uid, 0), now_s)
        if self._state.waiting:
            self._serve_waiters(now_s)

    def end(self, job: Job, state: LeaseState, reason: GoneReason, now_s: float) -> None:
        """The lease is over and counts no more."""
        lease = job.lease
        assert lease is not None
        lease.state = state
        self._state.note_rate(job, lease, 0, now_s)
        if state is not LeaseState.RELEASED:
            self._state.count("expired" if state is LeaseState.EXPIRED else "revoked")
        job.ended_fence, job.ended_reason, job.lease = lease.fence, reason, None
        self._state.live.pop(job.uid, None)
        self._state.unsettled = True
        self._state.touch(job, now_s)

    # -- rates -------------------------------------------------------------------------------------------------

    def _rest(self, now_s: float) -> int:
        """What of the budget is left for leases: not what silent jobs and fenced attempts may use."""
        taken = self._state.silent_elsewhere() + self._state.old_counted(now_s)
        return max(0, self._state.config.budget_bytes_per_s - taken)

    def _targets(self, now_s: float) -> dict[str, int]:
        ready = [job for job in self._state.live.values() if job.lease is not None and job.lease.ready]
        leases = [job.lease for job in ready if job.lease is not None]
        rates = admission.fill(leases, self._rest(now_s), self._state.config)
        return {job.uid: rate for job, rate in zip(ready, rates, strict=True)}

    def _offerable(self, job: Job, target: int, now_s: float) -> int:
        """How much of the target may be offered now: what is free of all that may be in use.

        In grace a holder keeps what it has: others that hold something have not come back yet.
        """
        free = self._state.config.budget_bytes_per_s - self._state.counted_without(job, now_s)
        wanted = counting.leased(job, now_s) if self._state.in_grace else target
        return max(0, min(wanted, free))

    def _speak_early(self, job: Job, lease: Lease, target: int, now_s: float) -> None:
        current = counting.leased(job, now_s)
        rate = self._offerable(job, target, now_s)
        raise_by = max(1.0, RAISE_SHARE * self._state.config.capacity_bytes_per_s)
        if rate < current or rate >= current + raise_by or (rate and not current):
            self._offer(job, lease, self._state.config.ttl_s, now_s)

    def _offer(self, job: Job, lease: Lease, ttl_s: float, now_s: float) -> None:
        """Answer the held request with what the lease may use from now on."""
        assert job.held is not None
        target = self._targets(now_s).get(job.uid, 0)
        rate = self._offerable(job, target, now_s)
        before = (lease.state, counting.leased(job, now_s))
        if rate > 0:
            lease.state = LeaseState.ACTIVE
        lease.reason = self._rate_reason(lease, rate, now_s)
        if (lease.state, rate) != before or not lease.offers:
            self._state.note_rate(job, lease, rate, now_s)
        lease.offers.append(Offer(seq=job.held.seq, bytes_per_s=rate, until_s=now_s + ttl_s))
        grant = Grant(
            seq=job.held.seq,
            held_s=now_s - job.held.received_s,
            confirm=self._needs_contact(job, now_s),
            fence=lease.fence,
            state=lease.state,
            bytes_per_s=rate,
            ttl_s=ttl_s,
            reason=lease.reason,
            start_within_s=None if lease.ready_by_s is None else lease.ready_by_s - now_s,
            plan=self._registry.plan_for(job, now_s),
        )
        self._state.reply(job, grant, job.held.received_s, now_s)

    def _rate_reason(self, lease: Lease, rate: int, now_s: float) -> RateReason:
        if not lease.ready:
            return RateReason.PREPARE
        if rate >= admission.wanted(lease.max_bytes_per_s, self._state.config):
            return RateReason.FULL
        if self._state.in_grace:
            return RateReason.GRACE
        if rate > 0:
            return RateReason.SHARED
        if self._state.silent_elsewhere() >= self._state.config.budget_bytes_per_s:
            return RateReason.SILENT_JOBS
        return RateReason.OLD_LEASE if self._state.old_counted(now_s) else RateReason.NO_ROOM

    # -- grants ------------------------------------------------------------------------------------------------

    def _serve_waiters(self, now_s: float) -> None:
        """Grant to those who fit, in order; send those home whose turn is far away."""
        backlog, position = self._backlog(), 0
        live, rest = self._live_leases(), self._rest(now_s)
        reason = self._wait_reason(rest, now_s)
        for job in admission.in_order(self._state.waiting.values()):
            waiter = job.waiter
            assert waiter is not None
            if admission.room_to_start(live, rest, waiter, self._state.config):
                self._grant(job, waiter, now_s)
                live, rest = self._live_leases(), self._rest(now_s)
                continue
            waiter.reason = reason
            eta_s = backlog / max(1, self._state.config.budget_bytes_per_s)
            if position >= max(admission.ALWAYS_HELD, 2 * len(live)) and eta_s > HOLD_SLOT_S:
                retry_s = min(MAX_RETRY_S, eta_s / 2.0) * (0.8 + 0.4 * self._state.rng.random())
                self._wait(job, retry_s, waiter.reason, now_s, eta_s)
            backlog += waiter.num_bytes or 0
            position += 1

    def _live_leases(self) -> list[Lease]:
        return [job.lease for job in self._state.live.values() if job.lease is not None]

    def _backlog(self) -> int:
        """Bytes that the live leases have still to write; unknown ones count 0."""
        return sum(max(0, (lease.num_bytes or 0) - lease.done_bytes) for lease in self._live_leases())

    def _grant(self, job: Job, waiter: Waiter, now_s: float) -> None:
        assert job.held is not None
        in_hand = waiter.started or waiter.ready_in_s == 0.0
        lease = Lease(
            fence=self._state.next_fence(),
            kind=waiter.kind,
            state=LeaseState.ARMED,
            granted_s=now_s,
            offers=[],
            reason=RateReason.PREPARE,
            ready=in_hand,
            ready_by_s=None if in_hand else now_s + _start_within(job, waiter),
            num_bytes=waiter.num_bytes,
            max_bytes_per_s=waiter.max_bytes_per_s,
        )
        job.lease, job.waiter, job.queued_since_s = lease, None, None
        del self._state.waiting[job.uid]
        self._state.live[job.uid] = job
        self._state.count("granted")
        self._offer(job, lease, self._state.config.first_ttl_s, now_s)

    def _recreate(self, job: Job, request: Renew, now_s: float) -> None:
        """Grace after lost memory: the holder tells what it holds; it is counted as told and never raised."""
        lease = Lease(
            fence=self._state.next_fence(),
            kind=Kind.WRITE,
            state=LeaseState.ACTIVE,
            granted_s=now_s,
            offers=[
                Offer(
                    seq=request.ack,
                    bytes_per_s=request.held_bytes_per_s,
                    until_s=now_s + self._state.config.ttl_s,
                )
            ],
            reason=RateReason.GRACE,
            ready=True,
            num_bytes=request.num_bytes,
        )
        job.lease = lease
        self._state.live[job.uid] = job
        self._state.note_rate(job, lease, request.held_bytes_per_s, now_s)

    # -- waits -------------------------------------------------------------------------------------------------

    def _answer_if_over(self, job: Job, now_s: float) -> None:
        if job.held is None or now_s < job.held.until_s:
            return
        if job.waiter is not None:
            self._wait(job, 0.0, job.waiter.reason, now_s)
        elif job.lease is not None:
            self._offer(job, job.lease, self._state.config.ttl_s, now_s)
        else:
            self._gone(job, job.held.seq, now_s)

    def _wait(
        self, job: Job, retry_s: float, reason: WaitReason, now_s: float, eta_s: float | None = None
    ) -> None:
        assert job.held is not None
        job.waiter = None
        self._state.waiting.pop(job.uid, None)
        self._state.count("waited")
        answer = Wait(
            seq=job.held.seq,
            held_s=now_s - job.held.received_s,
            confirm=self._needs_contact(job, now_s),
            retry_after_s=retry_s,
            reason=reason,
            eta_s=eta_s,
            plan=self._registry.plan_for(job, now_s),
        )
        self._state.reply(job, answer, job.held.received_s, now_s)

    def _gone(self, job: Job, seq: int, now_s: float) -> None:
        answer = Gone(
            seq=seq,
            held_s=0.0,
            confirm=self._needs_contact(job, now_s),
            reason=job.ended_reason,
            plan=self._registry.plan_for(job, now_s),
        )
        self._state.reply(job, answer, now_s, now_s)

    def _wait_reason(self, rest_bytes_per_s: int, now_s: float) -> WaitReason:
        if self._state.in_grace:
            return WaitReason.GRACE
        if rest_bytes_per_s > 0:
            return WaitReason.QUEUE
        return WaitReason.OLD_LEASE if self._state.old_counted(now_s) else WaitReason.SILENT_JOBS

    def _needs_contact(self, job: Job, now_s: float) -> bool:
        return counting.needs_contact(job, self._state.config, now_s)

    def holder_of(self, fence: Fence) -> Job | None:
        """Whose live lease carries this fence."""
        return next(
            (job for job in self._state.live.values() if job.lease and job.lease.fence == fence), None
        )


def _waiter(job: Job, request: SlotRequest, since_s: float) -> Waiter:
    return Waiter(
        since_s=since_s,
        kind=request.kind,
        reason=WaitReason.QUEUE,
        num_bytes=job.num_bytes if request.num_bytes is None else request.num_bytes,
        max_bytes_per_s=request.max_bytes_per_s,
        ready_in_s=1.0 if request.ready_in_s is None else request.ready_in_s,
        started=request.started,
        urgent=request.urgent,
    )


def _start_within(job: Job, waiter: Waiter) -> float:
    lead_s = max(waiter.ready_in_s, job.learned.lead_s or 0.0)
    return max(START_WITHIN_S, 2.0 * lead_s) * 2.0 ** min(job.num_not_ready, MAX_DOUBLINGS)


def _note_progress(lease: Lease, request: Renew, now_s: float) -> None:
    if lease.reported_s is not None and now_s > lease.reported_s:
        grown = max(0, request.done_bytes - lease.done_bytes)
        lease.achieved_bytes_per_s = int(grown / (now_s - lease.reported_s))
    lease.done_bytes, lease.reported_s = request.done_bytes, now_s
