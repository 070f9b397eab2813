"""The waiters of one pool: who is granted, who stays on the line, who is sent home until later, and why.

Only connected waiters are granted, so the first in order are always held; those whose turn is far away are told when to
ask again. Others may pass a head that does not fit, until it starves: then nobody does.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from rampmeter.core.messages import Kind, WaitReason
from rampmeter_coordinator.model import bidding, counting, precedence, urgency
from rampmeter_coordinator.model.admission import Writer
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

STALE_S = 1.0
"""A look at the queue is good for a newcomer for so long, if nothing but newcomers came."""

Grant = Callable[[Job, Waiter, float], None]


@dataclass(slots=True, kw_only=True)
class _Look:
    """What the last walk along a queue found: good until something moves, or it is stale."""

    at_s: float
    outlook: Outlook
    may_pass: bool
    backlog_bytes: int
    max_held: int


class Queueing:
    """Serves the waiters of one pool; `grant` gives a lease."""

    def __init__(self, state: PoolState, rates: Rates, answering: Answering, grant: Grant) -> None:
        self._state = state
        self._rates = rates
        self._answering = answering
        self._grant = grant
        self._seen: dict[Kind, _Look] = {}

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
        self._seen.clear()
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

    def joins_quietly(self, job: Job, waiter: Waiter, now_s: float) -> bool:
        """Take in a newcomer while nothing else has moved; False if it may change anything for anybody.

        With no room in sight it waits with the others, or the last of them is sent home; the next walk sorts them.
        """
        lane = self._state.config.lane(waiter.kind)
        look = self._seen.get(lane)
        if look is None or now_s > look.at_s + STALE_S or waiter.deadline_at_s is not None or waiter.started:
            return False
        if any(job.lease is not None and job.lease.num_bytes is None for job in self._state.live.values()):
            return False  # it gives way as soon as anybody else wants the room
        newcomer = self._rates.newcomer(job, waiter, lane, now_s + lead_of(job, waiter))
        if look.may_pass and self._fits(job, waiter, newcomer, look.outlook, now_s):
            return False
        self._look_again_at(look.outlook.first_end_s - (newcomer.from_s - now_s) - ARM_AHEAD_S, now_s)
        waiter.reason = self._reason(job, waiter, lane, now_s)
        held = [
            other
            for other in self._state.waiting.values()
            if other.waiter is not None and self._state.config.lane(other.waiter.kind) is lane
        ]
        last = bidding.in_order(held, self._state.budget(lane), now_s)[-1]
        assert last.waiter is not None
        self._stays_or_goes(last, last.waiter, look, len(held) - 1, now_s)
        return True

    def _serve_lane(self, order: list[Job], lane: Kind, now_s: float) -> None:
        outlook, hopeless = self._outlook(lane, now_s), _Hopeless()
        look = _Look(
            at_s=now_s, outlook=outlook, may_pass=True, backlog_bytes=self._backlog(lane), max_held=ALWAYS_HELD
        )
        num_writing, position = len(self._state.holders(lane)), 0
        for job in order:
            waiter = job.waiter
            assert waiter is not None
            newcomer = self._rates.newcomer(job, waiter, lane, now_s + lead_of(job, waiter))
            may_fit = look.may_pass and not hopeless.covers(newcomer)
            if may_fit and self._fits(job, waiter, newcomer, outlook, now_s):
                self._grant(job, waiter, now_s)
                outlook.comes_next(newcomer)
                num_writing += 1
                continue
            hopeless.add(newcomer)
            self._look_again_at(outlook.first_end_s - (newcomer.from_s - now_s) - ARM_AHEAD_S, now_s)
            outlook.comes_next(newcomer)
            look.may_pass = look.may_pass and not bidding.is_starving(job, waiter, now_s)
            look.max_held = max(ALWAYS_HELD, 2 * num_writing)
            self._stays_or_goes(job, waiter, look, position, now_s)
            position += 1
        self._seen[lane] = look

    def _fits(self, job: Job, waiter: Waiter, newcomer: Writer, outlook: Outlook, now_s: float) -> bool:
        """Whether room appears in time; a blocked read looks past those whom it would pause."""
        lane = self._state.config.lane(waiter.kind)
        if waiter.kind is Kind.READ and lane is Kind.WRITE:
            holders = self._state.holders(lane)
            outlook = self._outlook_of(
                precedence.ahead_of_waiter(holders, job, waiter, self._state.budget(lane), now_s), lane, now_s
            )
        return outlook.has_room_for(newcomer, newcomer.from_s - now_s)

    def _stays_or_goes(self, job: Job, waiter: Waiter, look: _Look, position: int, now_s: float) -> None:
        """The first of a queue are held, and who comes soon; others are told when to ask again."""
        lane = self._state.config.lane(waiter.kind)
        waiter.reason = self._reason(job, waiter, lane, now_s)
        eta_s = look.backlog_bytes / max(1, self._state.budget(lane))
        look.backlog_bytes += waiter.num_bytes or 0
        if position >= look.max_held and eta_s > HOLD_SLOT_S:
            retry_s = min(MAX_RETRY_S, eta_s / 2.0) * (0.8 + 0.4 * self._state.rng.random())
            self._answering.wait(job, retry_s, waiter.reason, now_s, eta_s=eta_s)

    def _outlook(self, lane: Kind, now_s: float) -> Outlook:
        """Those who write or will. Who is armed and late blocks nobody: it may come at any time, or never."""
        return self._outlook_of(self._rates.in_order(self._state.holders(lane), lane, now_s), lane, now_s)

    def _outlook_of(self, holders: list[Job], lane: Kind, now_s: float) -> Outlook:
        writers = [
            self._rates.writer(job, now_s)
            for job in holders
            if job.lease is not None and (job.lease.ready or (job.lease.ready_at_s or 0.0) >= now_s)
        ]
        return Outlook(writers, self._rates.rest(lane, now_s), self._state.config, now_s)

    def _look_again_at(self, at_s: float, now_s: float) -> None:
        # Whatever else changes is heard of: a renewal, a release, the end of a lease.
        if now_s < at_s < math.inf:
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


class _Hopeless:
    """Who had no room, by what it needed and from when: whoever comes later and needs no less then has none either."""

    def __init__(self) -> None:
        self._needs: list[tuple[int, float]] = []

    def add(self, writer: Writer) -> None:
        if writer.tenant is None and not writer.is_read:  # a tenant's cap says nothing of others
            self._needs.append((writer.least_bytes_per_s, writer.from_s))

    def covers(self, writer: Writer) -> bool:
        if writer.is_read:
            return False
        return any(
            least <= writer.least_bytes_per_s and writer.from_s == from_s for least, from_s in self._needs
        )


def lead_of(job: Job, waiter: Waiter) -> float:
    """Seconds from grant to first byte: what the job forecasts, or what was measured where that is longer."""
    return 0.0 if in_hand(waiter) else max(waiter.ready_in_s, job.learned.lead_s or 0.0)


def in_hand(waiter: Waiter) -> bool:
    """Whether the first byte is there already: a lapsed save that goes on."""
    return waiter.started or waiter.ready_in_s == 0.0
