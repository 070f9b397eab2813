"""The waiters of one pool: who is granted, who stays on the line, who is sent home until later, and why.

Only connected waiters are granted, so the first in order are always held; those whose turn is far away are told when to
ask again. Others may pass a head that does not fit, until it starves: then nobody does.
"""

import math
from collections.abc import Callable

from rampmeter.core.messages import Kind, WaitReason
from rampmeter_coordinator.model import bidding, counting, urgency
from rampmeter_coordinator.model.answering import Answering
from rampmeter_coordinator.model.arming import ARM_AHEAD_S, Outlook
from rampmeter_coordinator.model.pool import HOLD_SLOT_S
from rampmeter_coordinator.model.rates import Rates
from rampmeter_coordinator.model.records import Job, Waiter
from rampmeter_coordinator.model.state import PoolState
from rampmeter_coordinator.model.urgency import Rescue, Room

ALWAYS_HELD = 8
"""At least this many waiters are held on an open connection, so that there is always somebody to grant to."""

MAX_RETRY_S = 60.0

_LOOK_AGAIN_S = 0.1
"""The shortest time between two looks at who can be armed where nothing else has happened."""

Grant = Callable[[Job, Waiter, float], None]


class Queueing:
    """Serves the waiters of one pool; `grant` gives a lease."""

    def __init__(self, state: PoolState, rates: Rates, answering: Answering, grant: Grant) -> None:
        self._state = state
        self._rates = rates
        self._answering = answering
        self._grant = grant

    def live_price(self, now_s: float) -> float:
        """The largest waiting bid, in GPU-seconds per byte: what a byte of this storage is worth right now."""
        waiting = ((job, job.waiter) for job in self._state.waiting.values())
        bids = (
            bidding.bid_of(job, waiter, now_s)
            for job, waiter in waiting
            if waiter and waiter.kind is Kind.WRITE
        )
        return max(bids, default=0.0)

    def serve(self, now_s: float) -> bool:
        """Grant to those who fit, in order; send those home whose turn is far away. True if anybody was granted."""
        state, num_live = self._state, len(self._state.live)
        state.look_again_s = math.inf
        for lane in {state.config.lane(job.waiter.kind) for job in state.waiting.values() if job.waiter}:
            jobs = [
                job
                for job in state.waiting.values()
                if job.waiter and state.config.lane(job.waiter.kind) is lane
            ]
            if any(job.waiter and job.waiter.deadline_at_s is not None for job in jobs):
                jobs = self._serve_urgent(jobs, lane, now_s)
            self._serve_lane(bidding.in_order(jobs, state.budget(lane), now_s), lane, now_s)
        return len(state.live) > num_live

    def _serve_lane(self, order: list[Job], lane: Kind, now_s: float) -> None:
        outlook = self._outlook(lane, now_s)
        passing = True
        backlog_bytes, position, num_writing = self._backlog(lane), 0, len(self._state.holders(lane))
        for job in order:
            waiter = job.waiter
            assert waiter is not None
            lead_s = lead_of(job, waiter)
            newcomer = self._rates.newcomer(job, waiter, lane, now_s + lead_s)
            if passing and outlook.has_room_for(newcomer, lead_s):
                self._grant(job, waiter, now_s)
                outlook.comes_next(newcomer)
                num_writing += 1
                continue
            self._look_again_at(outlook.first_end_s - lead_s - ARM_AHEAD_S, now_s)
            outlook.comes_next(newcomer)
            passing = passing and not bidding.is_starving(job, waiter, now_s)
            waiter.reason = self._reason(job, waiter, lane, now_s)
            eta_s = backlog_bytes / max(1, self._state.budget(lane))
            if position >= max(ALWAYS_HELD, 2 * num_writing) and eta_s > HOLD_SLOT_S:
                retry_s = min(MAX_RETRY_S, eta_s / 2.0) * (0.8 + 0.4 * self._state.rng.random())
                self._answering.wait(job, retry_s, waiter.reason, now_s, eta_s=eta_s)
            backlog_bytes += waiter.num_bytes or 0
            position += 1

    def _outlook(self, lane: Kind, now_s: float) -> Outlook:
        """Those who write or will. Who is armed and late blocks nobody: it may come at any time, or never."""
        holders = self._rates.in_order(self._state.holders(lane), lane, now_s)
        writers = [
            self._rates.writer(job, now_s)
            for job in holders
            if job.lease is not None and (job.lease.ready or (job.lease.ready_at_s or 0.0) >= now_s)
        ]
        return Outlook(writers, self._rates.rest(lane, now_s), self._state.config, now_s)

    def _look_again_at(self, at_s: float, now_s: float) -> None:
        if (
            now_s < at_s < math.inf
        ):  # whatever else changes is heard of: a renewal, a release, the end of a lease
            self._state.look_again_s = min(self._state.look_again_s, max(at_s, now_s + _LOOK_AGAIN_S))

    def _backlog(self, lane: Kind) -> int:
        """Bytes that the live leases have still to write; unknown ones count 0."""
        leases = [job.lease for job in self._state.holders(lane) if job.lease is not None]
        return sum(max(0, (lease.num_bytes or 0) - lease.done_bytes) for lease in leases)

    def _reason(self, job: Job, waiter: Waiter, lane: Kind, now_s: float) -> WaitReason:
        state = self._state
        if state.in_grace:
            return WaitReason.GRACE
        if self._rates.rest(lane, now_s) <= 0:
            return WaitReason.OLD_LEASE if state.old_counted(lane, now_s) else WaitReason.SILENT_JOBS
        if waiter.num_bytes is None:
            return WaitReason.SIZE_UNKNOWN
        holders = state.holders(lane)
        if state.config.max_writers is not None and len(holders) >= state.config.max_writers:
            return WaitReason.MAX_WRITERS
        if job.tenant is not None and state.config.max_tenant_bytes_per_s is not None:
            of_tenant = sum(counting.leased(other, now_s) for other in holders if other.tenant == job.tenant)
            if of_tenant >= state.config.max_tenant_bytes_per_s:
                return WaitReason.TENANT_CAP
        return WaitReason.QUEUE

    # -- deadlines -------------------------------------------------------------------------------------------------

    def _serve_urgent(self, jobs: list[Job], lane: Kind, now_s: float) -> list[Job]:
        """Grant urgent saves that can be in time at once, tell the others; the rest of `jobs` is returned."""
        urgent = [job for job in jobs if job.waiter is not None and job.waiter.deadline_at_s is not None]
        rescues = self._rescues(urgent, lane, now_s)
        first_byte_s = min(rescue.from_s for rescue in rescues)
        verdict = urgency.judge(rescues, self._rooms(lane, first_byte_s, now_s), now_s)
        for job in urgent:
            assert job.waiter is not None
            fits_bytes = verdict.fits_bytes.get(job.uid)
            if fits_bytes is None:
                self._grant(job, job.waiter, now_s)
            else:
                self._state.count("will_not_fit")
                self._answering.wait(job, 0.0, WaitReason.WILL_NOT_FIT, now_s, fits_bytes=fits_bytes)
        return [job for job in jobs if job not in urgent]

    def _rescues(self, waiting: list[Job], lane: Kind, now_s: float) -> list[Rescue]:
        rescues = []
        for job in waiting:
            waiter = job.waiter
            assert waiter is not None
            assert waiter.deadline_at_s is not None
            rescues.append(
                Rescue(
                    uid=job.uid,
                    num_bytes=float(waiter.num_bytes or 0),
                    wanted_bytes_per_s=self._capped(
                        job, self._rates.newcomer(job, waiter, lane, now_s).wanted_bytes_per_s
                    ),
                    from_s=now_s + lead_of(job, waiter),
                    deadline_at_s=waiter.deadline_at_s,
                    at_risk_gpu_s=job.num_gpus * (now_s - waiter.unsaved_since_s),
                    granted=False,
                )
            )
        for job in self._state.holders(lane):
            lease = job.lease
            if lease is not None and lease.deadline_at_s is not None:
                writer = self._rates.writer(job, now_s)
                rescues.append(
                    Rescue(
                        uid=job.uid,
                        num_bytes=writer.bytes_left if writer.bytes_left < math.inf else 0.0,
                        wanted_bytes_per_s=self._capped(job, writer.wanted_bytes_per_s),
                        from_s=max(now_s, writer.from_s),
                        deadline_at_s=lease.deadline_at_s,
                        at_risk_gpu_s=math.inf,
                        granted=True,
                    )
                )
        return rescues

    def _capped(self, job: Job, wanted_bytes_per_s: int) -> int:
        cap = self._state.config.max_tenant_bytes_per_s
        return wanted_bytes_per_s if cap is None or job.tenant is None else min(cap, wanted_bytes_per_s)

    def _rooms(self, lane: Kind, first_byte_s: float, now_s: float) -> list[Room]:
        """Free now; from writers on the line one round trip after the first byte; else when their leases expire."""
        state = self._state
        free = max(0, state.budget(lane) - state.counted(lane, now_s))
        rooms = [Room(at_s=now_s, bytes_per_s=free)]
        for job in state.holders(lane):
            rate = counting.leased(job, now_s)
            if rate and job.lease is not None:
                if job.lease.deadline_at_s is not None:
                    back_s = now_s
                elif job.held is not None:
                    back_s = first_byte_s + urgency.ROUND_TRIP_S
                else:
                    back_s = counting.lease_until(job)
                rooms.append(Room(at_s=back_s, bytes_per_s=rate))
        rooms += [
            Room(at_s=share.until_s, bytes_per_s=share.bytes_per_s)
            for job in state.with_old_shares.values()
            for share in job.old_shares
            if state.config.lane(share.kind) is lane
        ]
        return rooms


def lead_of(job: Job, waiter: Waiter) -> float:
    """Seconds from grant to first byte: what the job forecasts, or what was measured where that is longer."""
    return 0.0 if in_hand(waiter) else max(waiter.ready_in_s, job.learned.lead_s or 0.0)


def in_hand(waiter: Waiter) -> bool:
    """Whether the first byte is there already: a lapsed save that goes on."""
    return waiter.started or waiter.ready_in_s == 0.0
