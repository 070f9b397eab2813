"""How much of a pool one job may be using at most: the arithmetic of "never over capacity".

Functions of one job's record and `now_s`; they read no clock and grant nothing. The rules and the measured reasons for
them: a lowering counts only when confirmed; contact needs a confirmed answer; a silent job's safe rate counts from
2 TTL - margin after contact on; a fenced attempt counts until it must have stopped.
"""

import math

from rampmeter.core.messages import MARGIN_S, Kind, Plan
from rampmeter_coordinator.model.pool import (
    ANSWER_AT_ONCE_AFTER_S,
    QUEUE_MEMORY_S,
    START_WITHIN_S,
    PoolConfig,
)
from rampmeter_coordinator.model.progress import Progress
from rampmeter_coordinator.model.records import Job, OldShare, Planned, SafeOffer

ANSWER_ON_ITS_WAY_S = 60.0
"""An answer that we sent may reach the agent this much later at most: longer than any client time-out."""


def confirm(job: Job, ack: int) -> bool:
    """The agent says that the answer to `ack` is the last one that it applied: later ones are void, older replaced.

    Returns whether what the job's leases count may have changed.
    """
    moved = False
    if job.old_shares:
        moved = True
        job.old_shares = tuple(
            share for share in job.old_shares if share.void_after_seq is None or ack <= share.void_after_seq
        )
    lease = job.lease
    if lease is not None and (len(lease.offers) != 1 or lease.offers[0].seq > ack):
        before = lease.offers
        lease.offers = [offer for offer in before if offer.seq <= ack][-1:]
        moved |= len({offer.bytes_per_s for offer in before}) > 1 or not lease.offers
    if job.safe_offers:
        job.safe_offers = _believed(job, ack)
    if ack == job.answered_seq and ack > 0:
        job.contact_s = job.answered_received_s
    return moved


def _believed(job: Job, ack: int) -> tuple[SafeOffer, ...]:
    """What is left of its safe offers: the newest confirmed one; none if that is the safe rate of its newest plan."""
    confirmed = tuple(offer for offer in job.safe_offers if offer.seq <= ack)[-1:]
    if not confirmed:
        return job.safe_offers
    holds_plan = confirmed[0].seq > 0 and confirmed[0].number == job.plan.number
    return () if holds_plan else confirmed


def leased(job: Job, now_s: float) -> int:
    """The largest rate that any unexpired offer of the job's lease allows."""
    lease = job.lease
    if lease is None:
        return 0
    most = 0
    for offer in lease.offers:
        if offer.bytes_per_s > most and now_s < offer.until_s:
            most = offer.bytes_per_s
    return most


def lease_until(job: Job) -> float:
    """When the last offer of the lease ends; 0 without one."""
    until_s = 0.0
    for offer in job.lease.offers if job.lease else ():
        until_s = max(until_s, offer.until_s)
    return until_s


def issued_safe(job: Job) -> int:
    """The largest safe rate that the job may believe in: what counts in the sum of issued safe rates."""
    if not job.safe_offers:
        return job.plan.safe_bytes_per_s
    return max(offer.bytes_per_s for offer in job.safe_offers)


def safe_offer(seq: int, plan: Plan | Planned) -> SafeOffer:
    """The safe rate of `plan`, sent with the answer to `seq`."""
    return SafeOffer(
        seq=seq,
        number=plan.number,
        bytes_per_s=plan.safe_bytes_per_s,
        after_s=plan.safe_after_s,
        for_s=plan.safe_for_s,
    )


def silent_from(job: Job, config: PoolConfig) -> float:
    """From when on the job's safe rate counts, unless it confirms an answer before; 0 = already.

    Every lease given before must have expired when the job may use its safe rate, by whichever plan it holds.
    """
    if job.contact_s is None:
        return 0.0
    offers = job.safe_offers
    usable_after_s = min(offer.after_s for offer in offers) if offers else job.plan.safe_after_s
    return job.contact_s + min(config.safe_counted_after_s, usable_after_s - config.ttl_s - MARGIN_S)


def silent_until(job: Job) -> float:
    """From when on a silent job is ungoverned: its plan's safe rate has ended, we count it no more."""
    if not job.safe_offers:
        longest_s = job.plan.safe_after_s + job.plan.safe_for_s
    else:
        longest_s = max(offer.after_s + offer.for_s for offer in job.safe_offers)
    return last_heard_s(job) + ANSWER_ON_ITS_WAY_S + longest_s


def last_heard_s(job: Job) -> float:
    """When something was last said to the job: contact is never later than its answer."""
    return job.answered_s if job.answered_s > job.registered_s else job.registered_s


def silence(job: Job, config: PoolConfig) -> tuple[float, float]:
    """[from, until) in which the job counts as silent if nothing is heard of it; empty after its goodbye."""
    if job.finished:
        return (math.inf, -math.inf)
    return (silent_from(job, config), silent_until(job))


def ends_next_s(job: Job, now_s: float) -> float:
    """When something of this job, beside its silence, ends next by itself; infinity if nothing does."""
    lease, held = job.lease, job.held
    next_s = math.inf if held is None or held.until_s <= now_s else held.until_s
    for share in job.old_shares:
        if now_s < share.until_s < next_s:
            next_s = share.until_s
    if lease is None:
        return next_s
    for offer in lease.offers:
        if now_s < offer.until_s < next_s:
            next_s = offer.until_s
    for at_s in (lease.ready_at_s, lease.ready_by_s):
        if at_s is not None and now_s < at_s < next_s:
            next_s = at_s
    return next_s


def needs_contact(job: Job, now_s: float) -> bool:
    """Nothing was confirmed for so long that holding a request would let the job count as silent."""
    return job.contact_s is None or now_s > job.contact_s + ANSWER_AT_ONCE_AFTER_S


def waits_since(job: Job, now_s: float) -> float | None:
    """When the job joined the queue; None if it is not in it, or died there."""
    turn = job.turn
    return None if turn is None or now_s > turn.asked_s + QUEUE_MEMORY_S else turn.queued_since_s


def is_silent(job: Job, config: PoolConfig, now_s: float) -> bool:
    """The job may be using its safe rate."""
    from_s, until_s = silence(job, config)
    return from_s <= now_s < until_s


def safe_counted(job: Job, config: PoolConfig, now_s: float) -> int:
    """The safe rate to count now: the issued one of a silent job."""
    return issued_safe(job) if is_silent(job, config, now_s) else 0


def old_counted(job: Job, now_s: float) -> int:
    """What fenced attempts of the job may still use."""
    return sum(share.bytes_per_s for share in job.old_shares if now_s < share.until_s)


def counted(job: Job, config: PoolConfig, now_s: float) -> int:
    """The most that the job may be using now. An agent uses its lease or its safe rate, never both."""
    return max(leased(job, now_s), safe_counted(job, config, now_s)) + old_counted(job, now_s)


def revoked(job: Job, now_s: float) -> OldShare:
    """What a lease that is taken back still counts: until it expires, or an answer of after now is confirmed."""
    assert job.lease is not None
    return OldShare(
        bytes_per_s=leased(job, now_s),
        until_s=lease_until(job),
        kind=job.lease.kind,
        void_after_seq=job.answered_seq,
    )


def fence_off(job: Job, config: PoolConfig, now_s: float) -> None:
    """A newer attempt came: keep counting what the older one holds.

    Its lease counts until it expires. Its safe rate counts for one TTL more: in fallback an agent reads the newest
    claim in its root every TTL / 2, and the new attempt claimed before it registered.
    """
    kind = job.lease.kind if job.lease is not None else Kind.WRITE
    for share in job.old_shares:
        share.void_after_seq = None  # the newer attempt's numbers say nothing of it
    shares = (
        OldShare(bytes_per_s=leased(job, now_s), until_s=lease_until(job), kind=kind),
        OldShare(bytes_per_s=safe_counted(job, config, now_s), until_s=now_s + config.ttl_s + MARGIN_S),
    )
    job.old_shares += tuple(share for share in shares if share.bytes_per_s)


def forget_past(job: Job, now_s: float) -> None:
    """Drop old shares whose time is over."""
    job.old_shares = tuple(share for share in job.old_shares if now_s < share.until_s)


def rebase(job: Job, now_s: float, until_s: float) -> None:
    """The record comes from another boot, whose times mean nothing here: the careful reading of each of them.

    What was held may be held until `until_s`; nothing was confirmed; ages count from `now_s`.
    """
    for offer in job.lease.offers if job.lease else ():
        offer.until_s = until_s
    for share in job.old_shares:
        share.until_s = until_s
    if job.lease is not None:
        job.lease.granted_s, job.lease.reported_s, job.lease.progress = now_s, None, Progress()
        job.lease.ready_by_s = None if job.lease.ready else now_s + START_WITHIN_S
        job.lease.goes_on = True
    if job.turn is not None:
        job.turn.queued_since_s = None
        if job.turn.save is not None:
            job.turn.save.begun_s = None
    job.registered_s = job.answered_s = now_s
    job.contact_s = job.answered_received_s = None
    job.snapshot_s = None if job.snapshot_s is None else now_s
    if job.history is not None:
        job.history.credited_s = now_s
