"""What is said to a job about slots and leases: the words of a Grant, a Wait, a Gone. Rates come from `rates`.

Every answer goes out through here, so that what is counted and what is said cannot differ.
"""

from rampmeter.core.fields import MAX_SECONDS
from rampmeter.core.messages import Gone, Grant, Kind, LeaseState, RateReason, Wait, WaitReason
from rampmeter_coordinator.model import counting
from rampmeter_coordinator.model.rates import Rates
from rampmeter_coordinator.model.records import Job, Lease, Offer, turn_of
from rampmeter_coordinator.model.registry import Registry
from rampmeter_coordinator.model.state import PoolState

RAISE_SHARE = 0.01
"""Raises below this share of the capacity wait for the end of the hold."""


class Answering:
    """Answers held requests of one pool."""

    def __init__(self, state: PoolState, registry: Registry, rates: Rates) -> None:
        self._state = state
        self._registry = registry
        self._rates = rates

    def offer(self, job: Job, lease: Lease, now_s: float) -> None:
        """Answer the held request with what the lease may use from now on; the first time for a shorter time."""
        state, held = self._state, job.held
        assert held is not None
        ttl_s = state.config.ttl_s if lease.offers else state.config.first_ttl_s
        rate, reason = self._rate_now(job, lease, now_s)
        before = (lease.state, counting.leased(job, now_s))
        if rate > 0:
            lease.state = LeaseState.ACTIVE
        lease.reason = reason
        if (lease.state, rate) != before or not lease.offers:
            state.note_rate(job, lease, rate, now_s)
            if state.config.lane(lease.kind) is Kind.WRITE and state.enforces(job):
                state.capacity.granted(job.uid, rate, now_s)
        lease.offers.append(Offer(seq=held.seq, bytes_per_s=rate, until_s=now_s + ttl_s))
        grant = Grant(
            seq=held.seq,
            held_s=now_s - held.received_s,
            confirm=counting.needs_contact(job, now_s),
            fence=lease.fence,
            state=lease.state,
            bytes_per_s=rate,
            ttl_s=ttl_s,
            reason=reason,
            start_within_s=None if lease.ready_by_s is None else _sayable(lease.ready_by_s - now_s),
            max_streams=state.config.max_streams,
            plan=self._registry.plan_for(job, now_s),
        )
        state.reply(job, grant, held.received_s, now_s)

    def should_hear(self, job: Job, lease: Lease, now_s: float) -> bool:
        """Whether the rate that would be offered now is worth an early answer: any lowering, raises that matter."""
        if not lease.ready or not self._state.enforces(job):
            return False
        lane = self._state.config.lane(lease.kind)
        current = counting.leased(job, now_s)
        target, _ = self._rates.target(job, lane, now_s)
        if target == current:
            return False
        rate = self._rates.offerable(job, target, now_s)
        raise_by = max(1.0, RAISE_SHARE * self._state.sustained(lane))
        return rate < current or rate >= current + raise_by or (rate > 0 and not current)

    def _rate_now(self, job: Job, lease: Lease, now_s: float) -> tuple[int, RateReason]:
        if not lease.ready:
            return 0, RateReason.PREPARE
        lane = self._state.config.lane(lease.kind)
        if not self._state.enforces(job):
            return lease.max_bytes_per_s or self._state.sustained(lane), RateReason.SHADOW
        claim = self._rates.claim_in_level(job, lane)
        if claim:
            return claim, RateReason.FULL
        target, wish = self._rates.target(job, lane, now_s)
        rate = self._rates.offerable(job, target, now_s)
        return rate, self._rates.reason(job, rate, wish, now_s)

    def wait(
        self,
        job: Job,
        retry_s: float,
        reason: WaitReason,
        now_s: float,
        *,
        eta_s: float | None = None,
        fits_bytes: int | None = None,
    ) -> None:
        """Send the held slot request home: ask again after `retry_s`."""
        held = job.held
        assert held is not None
        job.waiter = None
        self._state.waiting.pop(job.uid, None)
        self._state.count("waited")
        answer = Wait(
            seq=held.seq,
            held_s=now_s - held.received_s,
            confirm=counting.needs_contact(job, now_s),
            retry_after_s=retry_s,
            reason=reason,
            eta_s=None if eta_s is None else _sayable(eta_s),
            fits_bytes=fits_bytes,
            plan=self._registry.plan_for(job, now_s),
        )
        self._state.reply(job, answer, held.received_s, now_s)

    def gone(self, job: Job, seq: int, received_s: float, now_s: float) -> None:
        """The lease that the job speaks of is no more."""
        answer = Gone(
            seq=seq,
            held_s=now_s - received_s,
            confirm=counting.needs_contact(job, now_s),
            reason=turn_of(job).ended_reason,
            plan=self._registry.plan_for(job, now_s),
        )
        self._state.reply(job, answer, received_s, now_s)


def _sayable(duration_s: float) -> float:
    """Within the bounds of the wire: twice the longest lead time is not, and no agent would take in the answer."""
    return min(max(0.0, duration_s), MAX_SECONDS)
