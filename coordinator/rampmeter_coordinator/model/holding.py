"""The life of one lease: granted armed or with its rate, made anew after lost memory, taken back, over.

Decides nobody's turn: `queueing` and `leasing` do. Says whether what becomes of a lease is anybody else's business.
"""

from rampmeter.core.messages import Fence, GoneReason, Kind, LeaseState, RateReason, Renew
from rampmeter_coordinator.model import attempts, counting, estimates
from rampmeter_coordinator.model.answering import Answering
from rampmeter_coordinator.model.particulars import Save, Turn
from rampmeter_coordinator.model.pool import START_WITHIN_S
from rampmeter_coordinator.model.rates import Rates, in_hand, lead_of
from rampmeter_coordinator.model.records import Held, Job, Lease, Offer, Waiter, turn_of
from rampmeter_coordinator.model.state import PoolState

MAX_DOUBLINGS = 4
"""An armed lease is taken back after max(60 s, 2 x lead time), doubled per miss up to 16 times."""


class Holding:
    """The leases of one pool, one at a time."""

    def __init__(self, state: PoolState, rates: Rates, answering: Answering) -> None:
        self._state = state
        self._rates = rates
        self._answering = answering

    def grant(self, job: Job, waiter: Waiter, now_s: float) -> None:
        """Answer the waiter's held request with a lease: at rate 0 until its first byte is in hand."""
        assert job.held is not None
        is_there, lead_s, turn = in_hand(waiter), lead_of(job, waiter), turn_of(job)
        if turn.save_since_s is None:
            turn.save_since_s = now_s
        estimates.granted(job, waiter, now_s)
        lease = Lease(
            fence=self._state.next_fence(),
            kind=waiter.kind,
            state=LeaseState.ARMED,
            granted_s=now_s,
            offers=[],
            reason=RateReason.PREPARE,
            ready=is_there,
            ready_by_s=None if is_there else now_s + _start_within(turn, lead_s),
            num_bytes=waiter.num_bytes,
            max_bytes_per_s=waiter.max_bytes_per_s,
            order_s=turn.save_since_s,
            ready_at_s=None if is_there else now_s + lead_s,
            deadline_at_s=waiter.deadline_at_s,
            goes_on=waiter.started,
            background=waiter.background,
        )
        attempts.waited(self._state, job, waiter, now_s)
        job.lease, job.waiter, turn.queued_since_s = lease, None, None
        self._state.waiting.pop(job.uid, None)
        self._state.hold(job)
        self._state.count("granted")
        self._rates.joined(job, self._state.config.lane(lease.kind))
        if is_there and self._state.enforces(job):
            self.answer_with_rate(job, job.held, now_s)
        else:
            self._answering.offer(job, lease, now_s)

    def recreate(self, job: Job, request: Renew, now_s: float) -> None:
        """Grace after lost memory: the holder tells what it holds; it is counted as told and never raised."""
        until_s = now_s + self._state.config.ttl_s
        lease = Lease(
            fence=self._state.next_fence(),
            kind=request.kind,
            state=LeaseState.ACTIVE,
            granted_s=now_s,
            offers=[Offer(seq=request.ack, bytes_per_s=request.held_bytes_per_s, until_s=until_s)],
            reason=RateReason.GRACE,
            ready=True,
            num_bytes=job.num_bytes if request.num_bytes is None else request.num_bytes,
            order_s=now_s,
            goes_on=True,
            background=request.background and request.kind is Kind.READ,
        )
        turn = turn_of(job)
        job.lease, turn.save_since_s, turn.save = lease, now_s, Save(kind=request.kind, begun_s=None)
        self._state.hold(job)
        self._state.note_rate(job, lease, request.held_bytes_per_s, now_s)

    @staticmethod
    def hold_no_more(lease: Lease, request: Renew) -> None:
        """Grace after lost commits: one of them may have lowered the lease, and another raised somebody else for it.

        What the holder tells is what it has, so that is no raise either: what is remembered may be one.
        """
        for offer in lease.offers:
            offer.bytes_per_s = min(offer.bytes_per_s, request.held_bytes_per_s)

    def answer_with_rate(self, job: Job, held: Held, now_s: float) -> None:
        """A ready lease hears its rate: at once where that moves nobody else, or as all are told what moved."""
        assert job.lease is not None
        job.held = held
        if self._rates.moves_nobody(job, self._state.config.lane(job.lease.kind)):
            self._answering.offer(job, job.lease, now_s)
        else:
            self._state.unsettled, held.until_s = True, now_s

    def moved(self, job: Job, *, also_others: bool = False) -> None:
        """What the lease counts has changed: others may be raised for it, where not all have what they could use."""
        lease = job.lease
        quietly = lease is not None and self._rates.moves_nobody(job, self._state.config.lane(lease.kind))
        self._state.unsettled |= also_others or not quietly

    def end(self, job: Job, state: LeaseState, reason: GoneReason, now_s: float) -> None:
        """The lease is over and counts no more."""
        lease = job.lease
        assert lease is not None
        lease.state = state
        self._state.capacity.left(job.uid)
        self._state.note_rate(job, lease, 0, now_s)
        if state is not LeaseState.RELEASED:
            self._state.count("expired" if state is LeaseState.EXPIRED else "revoked")
        turn = turn_of(job)
        turn.ended_fence = lease.fence if lease.kind is Kind.WRITE else None  # that of a restore is no save's
        turn.ended_reason = reason
        quietly = self._rates.leaves(job, self._state.config.lane(lease.kind))
        self._state.let_go(job)
        self._state.unsettled |= not quietly
        self._state.touch(job, now_s)

    def revoke(self, job: Job, reason: GoneReason, now_s: float) -> None:
        """Take the lease back. What it allowed counts until that is confirmed or it would have expired."""
        if self._state.enforces(job):
            job.old_shares += (counting.revoked(job, now_s),)
        self.end(job, LeaseState.REVOKED, reason, now_s)
        if job.held is not None:
            self._answering.gone(job, job.held.seq, job.held.received_s, now_s)

    def holder_of(self, fence: Fence) -> Job | None:
        """Whose live lease carries this fence."""
        return next(
            (job for job in self._state.live.values() if job.lease and job.lease.fence == fence), None
        )


def _start_within(turn: Turn, lead_s: float) -> float:
    return max(START_WITHIN_S, 2.0 * lead_s) * 2.0 ** min(turn.num_not_ready, MAX_DOUBLINGS)
