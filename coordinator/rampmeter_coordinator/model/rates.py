"""Who of those that hold a lease may write how fast: targets, and what may be offered of them now.

What is given out in sum, as `counting` counts it, never passes the budget: a raise takes only what is free of all that
may still be in use; a lowering is sent at once and frees nothing before it is confirmed or its lease has expired.
"""

from collections.abc import Sequence

from rampmeter.core.messages import Kind, RateReason
from rampmeter_coordinator.model import admission, counting, precedence
from rampmeter_coordinator.model.admission import Writer
from rampmeter_coordinator.model.level import Level
from rampmeter_coordinator.model.records import Job, Lease, Waiter
from rampmeter_coordinator.model.state import PoolState

Targets = dict[str, tuple[int, RateReason]]
NOTHING = (0, RateReason.NO_ROOM)


class Rates:
    """The bandwidth of one pool's leases. Changes no record."""

    def __init__(self, state: PoolState) -> None:
        self._state = state
        self._known: dict[Kind, Targets] = {}
        self._levels: dict[Kind, Level] = {}
        self._may_be_level = state.config.is_bounded_by_sum_only

    def rest(self, lane: Kind, now_s: float) -> int:
        """What of a lane's budget is left for leases: not what silent jobs and fenced attempts may use."""
        state = self._state
        rest = state.budget(lane) - state.silent_elsewhere(lane) - state.old_counted(lane, now_s)
        return rest if rest > 0 else 0

    def target(self, job: Job, lane: Kind, now_s: float) -> tuple[int, RateReason]:
        """What the job's ready lease should have, were all others told already; and why it is not more."""
        if self._state.unsettled or lane not in self._known:
            return self._targets(lane, now_s).get(job.uid, NOTHING)
        claim = self.claim_in_level(job, lane)
        return (claim, RateReason.FULL) if claim else self._known[lane].get(job.uid, NOTHING)

    def work_out(self, now_s: float) -> None:
        """Work the targets out anew: they hold until something moves."""
        self._levels.clear()
        for lane in self._state.lanes:
            level = self._level_of(lane, now_s)
            self._known[lane] = {} if level else self._targets(lane, now_s)
            if level:
                self._levels[lane] = level

    def _targets(self, lane: Kind, now_s: float) -> Targets:
        ready = [job for job in self._state.holders(lane) if job.lease is not None and job.lease.ready]
        return self._filled(self.in_order(ready, lane, now_s), lane, now_s) if ready else {}

    # -- where everybody has all that it could use ---------------------------------------------------------------

    def _level_of(self, lane: Kind, now_s: float) -> Level | None:
        """The lane's claims if nobody waits, they fit together and nothing else bounds anybody."""
        state = self._state
        if state.waiting or state.in_grace or not self._may_be_level:
            return None
        level = Level(self.rest(lane, now_s))
        for job in state.holders(lane):
            claim = self._plain_claim(job, lane)
            if claim is None or not level.fits(claim) or counting.leased(job, now_s) > claim:
                return None
            level.add(job.uid, claim)
        return level

    def _plain_claim(self, job: Job, lane: Kind) -> int | None:
        """What a holder could use, if that depends on nobody else: its size is known, it moves, it is heard of."""
        lease = job.lease
        assert lease is not None
        if lease.num_bytes is None or lease.progress.is_cut or job.silent_bytes_per_s:
            return None
        return self.wanted(job, lease.max_bytes_per_s, lane)

    def claim_in_level(self, job: Job, lane: Kind) -> int | None:
        """What a holder could use, where everybody has that and nothing is about to move; else None."""
        level = self._levels.get(lane)
        return None if level is None or self._state.unsettled else level.claim_of(job.uid)

    def has_all_room_for(self, job: Job, waiter: Waiter, lane: Kind) -> bool:
        """Whether a newcomer can have all that it could use at once, while nobody waits and nobody has to give way."""
        level = self._levels.get(lane)
        if level is None or self._state.unsettled or self._state.waiting or job.silent_bytes_per_s:
            return False
        if waiter.num_bytes is None or waiter.deadline_at_s is not None:
            return False
        return level.fits(self.wanted(job, waiter.max_bytes_per_s, lane))

    def moves_nobody(self, job: Job, lane: Kind) -> bool:
        """Whether what becomes of this holder means nothing for all others: they have what they could use."""
        return self.claim_in_level(job, lane) is not None and not self._state.waiting

    def joined(self, job: Job, lane: Kind) -> None:
        """The job has a lease now."""
        level = self._levels.get(lane)
        if level is None or not self._state.enforces(job):
            return
        claim = self._plain_claim(job, lane)
        if claim is None or not level.fits(claim):
            del self._levels[lane]
            self._state.unsettled = True  # the targets of its holders are not known
        else:
            level.add(job.uid, claim)

    def leaves(self, job: Job, lane: Kind) -> bool:
        """The job's lease ends; whether that means nothing for all others."""
        if not self.moves_nobody(job, lane):
            self._levels.pop(lane, None)
            return False
        self._levels[lane].remove(job.uid)
        return True

    # -- where it is not enough for all ------------------------------------------------------------------------

    def _filled(self, jobs: Sequence[Job], lane: Kind, now_s: float) -> Targets:
        writers = [self._claim(job, lane) for job in jobs]
        shares = admission.fill(writers, self.rest(lane, now_s), self._state.config)
        return {job.uid: share for job, share in zip(jobs, shares, strict=True)}

    def in_order(self, jobs: Sequence[Job], lane: Kind, now_s: float) -> list[Job]:
        """Holders of leases, the one with the first claim on bandwidth first."""
        if len(jobs) < 2:
            return list(jobs)
        return precedence.in_writing_order(jobs, self._state.budget(lane), now_s)

    def offerable(self, job: Job, target: int, now_s: float) -> int:
        """How much of the target may be offered now: what is free of all that may be in use.

        In grace a holder keeps what it has: others that hold something have not come back yet.
        """
        lease = job.lease
        assert lease is not None
        state, lane = self._state, self._state.config.lane(lease.kind)
        if not state.enforces(job):
            return target
        wanted = counting.leased(job, now_s) if state.in_grace else target
        free = state.budget(lane) - state.counted_without(job, lane, now_s)
        cap = state.config.max_tenant_bytes_per_s
        if job.terms.tenant is not None and cap is not None:
            free = min(free, cap - self._of_tenant_without(job, lane, now_s))
        return max(0, min(wanted, free))

    def _of_tenant_without(self, job: Job, lane: Kind, now_s: float) -> int:
        """What the tenant's other leases, and fenced or revoked ones of all its jobs, may still use of the lane."""
        others = (
            other
            for other in self._state.holders(lane)
            if other.terms.tenant == job.terms.tenant and other is not job
        )
        old = (
            other for other in self._state.with_old_shares.values() if other.terms.tenant == job.terms.tenant
        )
        return sum(counting.leased(other, now_s) for other in others) + sum(
            counting.old_counted(other, now_s) for other in old
        )

    def reason(self, job: Job, rate: int, wish: RateReason, now_s: float) -> RateReason:
        """Why a ready lease has this rate; `wish` is why its target is not more."""
        lease, state = job.lease, self._state
        assert lease is not None
        lane = state.config.lane(lease.kind)
        if rate > 0 and rate >= self.wanted(job, lease.max_bytes_per_s, lane):
            return RateReason.FULL
        if state.in_grace:
            return RateReason.GRACE
        if wish in (RateReason.MAX_WRITERS, RateReason.TENANT_CAP):
            return wish
        if lease.progress.is_cut:
            return RateReason.NO_PROGRESS
        return RateReason.SHARED if rate > 0 else self._why_nothing(lease, lane, now_s)

    def _why_nothing(self, lease: Lease, lane: Kind, now_s: float) -> RateReason:
        if self._state.silent_elsewhere(lane) >= self._state.budget(lane):
            return RateReason.SILENT_JOBS
        if self._state.old_counted(lane, now_s):
            return RateReason.OLD_LEASE
        return RateReason.PAUSED if lease.done_bytes and self._gives_way(lease) else RateReason.NO_ROOM

    def _gives_way(self, lease: Lease) -> bool:
        if lease.background:
            return True  # whoever has the room comes before it
        if not self._state.config.shared_reads or lease.kind is Kind.READ:
            return False
        others = (job.lease for job in self._state.live.values() if job.lease is not None)
        return any(precedence.is_blocked_read(other) for other in others)

    def would(self, lane: Kind, now_s: float) -> dict[str, int]:
        """Shadow mode: the rate of every lease of the lane, were all jobs held to the budget."""
        lane_of = self._state.config.lane
        jobs = [
            job
            for job in self._state.live.values()
            if job.lease is not None and lane_of(job.lease.kind) is lane
        ]
        ready = [job for job in jobs if job.lease is not None and job.lease.ready]
        return {
            uid: rate
            for uid, (rate, _) in self._filled(self.in_order(ready, lane, now_s), lane, now_s).items()
        }

    def would_wait(self, job: Job, waiter: Waiter) -> bool:
        """Whether a slot asked for now would not have been granted at once, were all jobs held to the budget."""
        lane = self._state.config.lane(waiter.kind)
        taken = sum(
            self.wanted(other, other.lease.max_bytes_per_s, lane)
            for other in self._state.live.values()
            if other.lease is not None and self._state.config.lane(other.lease.kind) is lane
        )
        wanted = self.wanted(job, waiter.max_bytes_per_s, lane)
        return taken > 0 and self._state.budget(lane) - taken < admission.least(wanted)

    # -- what admission works on -----------------------------------------------------------------------------------

    def wanted(self, job: Job, max_bytes_per_s: int | None, lane: Kind) -> int:
        """What a writer of this job could use: what it says, or less where it has shown that it cannot."""
        wanted = admission.wanted(max_bytes_per_s, self._state.budget(lane))
        shown = self._state.capacity.slow_maximum(job.uid) if lane is Kind.WRITE else None
        return wanted if shown is None else min(wanted, max(1, shown))

    def writer(self, job: Job, now_s: float) -> Writer:
        """The holder of a lease as the look ahead sees it."""
        lease = job.lease
        assert lease is not None
        writer = self._claim(job, self._state.config.lane(lease.kind))
        if lease.num_bytes is not None:
            written = _written(lease, counting.leased(job, now_s), now_s)
            writer.bytes_left = max(1.0, lease.num_bytes - written)
        if not lease.ready and lease.ready_at_s is not None:
            writer.from_s = lease.ready_at_s
        return writer

    def _claim(self, job: Job, lane: Kind) -> Writer:
        """What the holder of a lease could use now."""
        lease = job.lease
        assert lease is not None
        wanted = self.wanted(job, lease.max_bytes_per_s, lane)
        if lease.progress.is_cut:
            trickle = lease.progress.maximum(self._state.config.budget_bytes_per_s)
            wanted = min(wanted, trickle or wanted)
        if lease.num_bytes is None and lease.deadline_at_s is None and self._others_want(job, lane):
            wanted = min(wanted, int(admission.UNKNOWN_SHARE * self._state.budget(lane)))
        return Writer(
            wanted_bytes_per_s=wanted,
            least_bytes_per_s=admission.least(wanted),
            tenant=job.terms.tenant,
            is_read=lease.kind is Kind.READ,
        )

    def newcomer(self, job: Job, waiter: Waiter, lane: Kind, from_s: float) -> Writer:
        """A waiter as `admission` sees it, should it be armed now."""
        wanted = self.wanted(job, waiter.max_bytes_per_s, lane)
        if waiter.num_bytes is None and waiter.deadline_at_s is None and self._others_want(job, lane):
            wanted = min(wanted, int(admission.UNKNOWN_SHARE * self._state.budget(lane)))
        writer = Writer(
            wanted_bytes_per_s=wanted, least_bytes_per_s=admission.least(wanted), tenant=job.terms.tenant
        )
        writer.from_s, writer.is_read = from_s, waiter.kind is Kind.READ
        if waiter.num_bytes is not None:
            writer.bytes_left = max(1.0, float(waiter.num_bytes))
        return writer

    def _others_want(self, job: Job, lane: Kind) -> bool:
        """Whether somebody else, whose size is known, waits for this lane or holds a lease of it."""
        lane_of = self._state.config.lane
        waits = any(
            other is not job
            and other.waiter is not None
            and other.waiter.num_bytes is not None
            and lane_of(other.waiter.kind) is lane
            for other in self._state.waiting.values()
        )
        return waits or any(
            other is not job and other.lease is not None and other.lease.num_bytes is not None
            for other in self._state.holders(lane)
        )

    def somebody_gives_way(self) -> bool:
        """Whether a writer of unknown size is there: it has less as soon as anybody else wants the room."""
        return any(job.lease is not None and job.lease.num_bytes is None for job in self._state.live.values())


def _written(lease: Lease, rate: int, now_s: float) -> float:
    """Bytes that must be written by now, going on as reported."""
    if lease.reported_s is None or not lease.ready:
        return float(lease.done_bytes)
    pace = min(rate, lease.achieved_bytes_per_s) if lease.achieved_bytes_per_s else rate
    return lease.done_bytes + pace * max(0.0, now_s - lease.reported_s)


def lead_of(job: Job, waiter: Waiter) -> float:
    """Seconds from grant to first byte: what the job forecasts, or what was measured where that is longer."""
    return 0.0 if in_hand(waiter) else max(waiter.ready_in_s, job.known.lead_s or 0.0)


def in_hand(waiter: Waiter) -> bool:
    """Whether the first byte is there already: a lapsed save that goes on."""
    return waiter.started or waiter.ready_in_s == 0.0
