"""The whole memory of one pool, its running sums and its timers; every change to a job is announced with `touch`.

Keeps the sums that a decision needs (what silent jobs may use, issued safe rates) up to date in constant time, so that
no decision walks over all jobs. Decides nothing: `leasing` and `registry` do.
"""

import heapq
import json
import math
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, replace

from rampmeter.core.messages import AnyAnswer, Fence, Kind, Request
from rampmeter_coordinator.model import counting
from rampmeter_coordinator.model.capacity import Capacity
from rampmeter_coordinator.model.commands import Changes, Refusal, Reply
from rampmeter_coordinator.model.pool import SILENT_SHARE, PoolConfig
from rampmeter_coordinator.model.records import Job, Lease
from rampmeter_coordinator.model.views import TimelineRow, Totals

MAX_TIMELINE_ROWS = 4096


class PoolState:
    """Owned by one Ledger. Times are seconds of the coordinator's clock."""

    def __init__(self, config: PoolConfig, *, epoch: int, seed: int, grace_until_s: float) -> None:
        self.config = config
        self.grace_until_s = grace_until_s
        self.rng = random.Random(seed)
        self.jobs: dict[str, Job] = {}
        self.live: dict[str, Job] = {}
        self.waiting: dict[str, Job] = {}
        self.with_old_shares: dict[str, Job] = {}
        self.unsettled = True
        """Something has changed that may mean a grant, a raise or a lowering for somebody."""
        self.look_again_s = math.inf
        """When somebody may have to be armed: nothing else happens then."""
        self.totals = Totals()
        self.timeline: deque[TimelineRow] = deque(maxlen=MAX_TIMELINE_ROWS)
        self.capacity = Capacity(config.budget_bytes_per_s)
        self._written: tuple[Totals, int] | None = None
        self._meta_bytes = b""
        self._ceilings_before: dict[str, int] = {}
        self._epoch = epoch
        self._counter = 0
        self._silent: dict[str, int] = {}
        self._silent_sum = 0
        self._issued: dict[str, int] = {}
        self._issued_sum = 0
        self._timers: list[tuple[float, str]] = []
        self._dirty: set[str] = set()
        self._replies: list[Reply] = []

    # -- memory ------------------------------------------------------------------------------------------------

    def restore(self, records: Mapping[str, bytes], meta: bytes) -> None:
        """Take up what a store kept. In grace its times belong to another boot: what was held counts until its end."""
        kept = json.loads(meta)
        self.totals = Totals(**kept["totals"])
        self._ceilings_before = kept.get("ceilings", {})
        self.capacity = Capacity.from_dict(kept.get("capacity", {}), self.config.budget_bytes_per_s)
        self.jobs = {uid: Job.from_bytes(raw) for uid, raw in records.items()}
        held = [(job.lease.granted_s, job) for job in self.jobs.values() if job.lease is not None]
        self.live = {job.uid: job for _, job in sorted(held, key=lambda pair: pair[0])}

    def wake_up(self, now_s: float) -> list[Job]:
        """The first look at the clock: all sums and timers, and every job as due, for time has passed for each.

        Grace that goes on from an earlier life may end before the leases given in it: they count for their full time.
        """
        held_until_s = max(self.grace_until_s, now_s + self.config.grace_s)
        for job in self.jobs.values():
            if self.in_grace:  # kept at once: no times of another boot under the name of this one
                counting.rebase(job, now_s, held_until_s)
                self._dirty.add(job.uid)
            self.refresh(job, now_s)
        return list(self.jobs.values())

    def remove(self, job: Job) -> None:
        """A job is forgotten; only for jobs that may not use anything."""
        del self.jobs[job.uid]
        self._silent_sum -= self._silent.pop(job.uid, 0)
        self._issued_sum -= self._issued.pop(job.uid, 0)
        self._dirty.add(job.uid)

    def take_changes(self) -> Changes:
        """What changed since the last call, as a store keeps it."""
        records = {uid: self.jobs[uid].to_bytes() if uid in self.jobs else None for uid in self._dirty}
        self._dirty = set()
        return Changes(records=records, meta=self._meta())

    def _meta(self) -> bytes:
        """Figures of the pool as a whole, written anew only when one of them has moved."""
        moved = (self.totals, self.capacity.cap_bytes_per_s)
        if moved != self._written:
            kept = {
                "totals": asdict(self.totals),
                "capacity": self.capacity.to_dict(),
                "ceilings": {lane: self.highest_ceiling(lane) for lane in Kind},
            }
            self._written = moved
            self._meta_bytes = json.dumps(kept, separators=(",", ":")).encode()
        return self._meta_bytes

    # -- changes -----------------------------------------------------------------------------------------------

    def touch(self, job: Job, now_s: float) -> None:
        """The job's record changed: bring the sums and its timer up to date, and have it stored."""
        self.refresh(job, now_s)
        self._dirty.add(job.uid)

    def refresh(self, job: Job, now_s: float) -> None:
        """Time has passed for this job: bring the sums and its timer up to date."""
        if job.old_shares:
            self._refresh_old_shares(job, now_s)
        from_s, until_s = counting.silence(job, self.config)
        issued = counting.issued_safe(job) if now_s < until_s else 0
        silent = issued if from_s <= now_s else 0
        if silent != self._silent.get(job.uid, 0):
            self._silent_sum += self._set(self._silent, job.uid, silent)
            self.unsettled = True
        if issued != self._issued.get(job.uid, 0):
            self._issued_sum += self._set(self._issued, job.uid, issued)
        self._schedule(job, now_s, (from_s, until_s))

    def _refresh_old_shares(self, job: Job, now_s: float) -> None:
        counting.forget_past(job, now_s)
        self.unsettled = True
        if job.old_shares:
            self.with_old_shares[job.uid] = job
        else:
            self.with_old_shares.pop(job.uid, None)

    @staticmethod
    def _set(values: dict[str, int], uid: str, value: int) -> int:
        """Set and return by how much the sum grows."""
        before = values.get(uid, 0)
        if value:
            values[uid] = value
        else:
            values.pop(uid, None)
        return value - before

    def next_fence(self) -> Fence:
        """A fence number higher than any before, also of earlier lives."""
        self._counter += 1
        return Fence(epoch=self._epoch, counter=self._counter)

    def count(self, name: str, amount: int = 1) -> None:
        """Add to one of the totals."""
        self.totals = replace(self.totals, **{name: getattr(self.totals, name) + amount})

    def note_rate(self, job: Job, lease: Lease, bytes_per_s: int, now_s: float) -> None:
        """A lease's rate or state changes: one row of the timeline."""
        self.timeline.append(
            TimelineRow(
                at_s=now_s,
                job_uid=job.uid,
                job=job.name,
                fence=lease.fence,
                state=lease.state,
                bytes_per_s=bytes_per_s,
            )
        )

    # -- sums --------------------------------------------------------------------------------------------------

    @property
    def in_grace(self) -> bool:
        """Only holders are served: set back to False by the ledger once the time is over."""
        return self.grace_until_s > 0.0

    @property
    def silent_sum(self) -> int:
        """What silent jobs may use, in bytes/s."""
        return self._silent_sum

    def highest_ceiling(self, lane: Kind) -> int:
        """The largest budget that leases of this lane may have been given under: ours, or that of the life before."""
        ours = self.config.budget_bytes_per_s if lane is Kind.WRITE else self.config.read_budget_bytes_per_s
        return max(ours, self._ceilings_before.get(lane, 0))

    def enforces(self, job: Job) -> bool:
        """Whether the job has to wait for its slot; the others are granted at once and are in no sum."""
        share = self.config.enforced_share
        return share >= 1.0 or int(job.uid[:8], 16) < share * 2.0**32

    def budget(self, lane: Kind) -> int:
        """The most that may be granted in sum from this lane now, in bytes/s: for writes the learned cap."""
        if lane is Kind.WRITE:
            return self.capacity.cap_bytes_per_s
        return self.config.read_budget_bytes_per_s

    def sustained(self, lane: Kind) -> int:
        """What the storage sustains for this lane, as far as is known, in bytes/s: B = cap / u."""
        return int(self.budget(lane) / self.config.utilisation)

    def holders(self, lane: Kind) -> list[Job]:
        """Jobs that hold a lease of this lane, in the order in which they were granted."""
        config = self.config
        return [
            job
            for job in self.live.values()
            if job.lease is not None and config.lane(job.lease.kind) is lane and self.enforces(job)
        ]

    def counted(self, lane: Kind, now_s: float) -> int:
        """The most that all jobs together may be using of this lane now, in bytes/s."""
        used = self.old_counted(lane, now_s)
        if lane is not Kind.WRITE:
            return used + sum(counting.leased(job, now_s) for job in self.holders(lane))
        over_silent = (
            max(0, counting.leased(job, now_s) - self._silent.get(job.uid, 0)) for job in self.holders(lane)
        )
        return used + self._silent_sum + sum(over_silent)

    def counted_without(self, job: Job, lane: Kind, now_s: float) -> int:
        """The same without what this job's own newest attempt may use."""
        silent = self._silent.get(job.uid, 0) if lane is Kind.WRITE else 0
        return self.counted(lane, now_s) - max(counting.leased(job, now_s), silent)

    def silent_elsewhere(self, lane: Kind) -> int:
        """What silent jobs without a lease of this lane may use of it: safe rates are for writing."""
        if lane is not Kind.WRITE:
            return 0
        if not self._silent_sum:
            return 0
        return self._silent_sum - sum(self._silent.get(job.uid, 0) for job in self.holders(lane))

    def old_counted(self, lane: Kind, now_s: float) -> int:
        """What fenced attempts and revoked leases may still use of this lane."""
        return sum(
            share.bytes_per_s
            for job in self.with_old_shares.values()
            for share in job.old_shares
            if now_s < share.until_s and self.config.lane(share.kind) is lane
        )

    def safe_room_for(self, job: Job) -> int:
        """The largest safe rate that the job may be issued now without the sum passing what silent jobs may use.

        In grace nobody is raised: jobs that have not come back yet hold shares that we do not know of.
        """
        own = self._issued.get(job.uid, 0)
        room = max(0, int(SILENT_SHARE * self.budget(Kind.WRITE)) - (self._issued_sum - own))
        return min(room, own) if self.in_grace else room

    # -- answers -----------------------------------------------------------------------------------------------

    def reply(self, job: Job, body: AnyAnswer, received_s: float, now_s: float) -> None:
        """Answer the job's request `body.seq`, received at `received_s`; kept for replays."""
        job.answered_seq, job.answered_received_s, job.answered_s = body.seq, received_s, now_s
        job.answer, job.held = body, None
        if body.plan is not None:
            job.safe_offers.append(counting.safe_offer(body.seq, body.plan))
        self._send(job, body.seq, body)
        self.touch(job, now_s)

    def refuse_held(self, job: Job, refusal: Refusal) -> None:
        """End the wait of the job's held request with a refusal."""
        if job.held is not None:
            self._send(job, job.held.seq, refusal)
            job.held = None
        job.waiter = None
        self.waiting.pop(job.uid, None)

    def replay(self, job: Job, now_s: float) -> None:
        """Send the last answer again, unchanged. The agent may receive it, and count its silence, from now on."""
        assert job.answer is not None
        self._send(job, job.answered_seq, job.answer)
        job.answered_s = now_s
        self.touch(job, now_s)

    def refuse(self, request: Request, refusal: Refusal) -> None:
        """Refuse a request; nothing is kept of it."""
        self._replies.append(
            Reply(job_uid=request.job_uid, attempt=request.attempt, seq=request.seq, body=refusal)
        )

    def _send(self, job: Job, seq: int, body: AnyAnswer | Refusal) -> None:
        self._replies.append(Reply(job_uid=job.uid, attempt=job.attempt, seq=seq, body=body))

    def take_replies(self) -> tuple[Reply, ...]:
        """The replies since the last call, in order."""
        replies, self._replies = tuple(self._replies), []
        return replies

    # -- timers ------------------------------------------------------------------------------------------------

    def wake_at_s(self) -> float | None:
        """The earliest time at which something happens by itself."""
        times = [self._timers[0][0]] if self._timers else []
        if self.in_grace:
            times.append(self.grace_until_s)
        if self.look_again_s < math.inf:
            times.append(self.look_again_s)
        learn_s = self.capacity.wake_at_s()
        if learn_s is not None:
            times.append(learn_s)
        return min(times, default=None)

    def learn(self, now_s: float) -> None:
        """Time goes on for the learned cap; a pool that is not at its ceiling probes for more."""
        cap = self.capacity.cap_bytes_per_s
        wake_s = self.capacity.wake_at_s()
        if cap == self.config.budget_bytes_per_s or (wake_s is not None and now_s < wake_s):
            return
        counted = self.counted(Kind.WRITE, now_s)
        leased = sum(counting.leased(job, now_s) for job in self.holders(Kind.WRITE))
        self.capacity.passed(now_s, counted, max(0, counted - leased))
        self.unsettled |= cap != self.capacity.cap_bytes_per_s

    def take_due(self, now_s: float) -> list[Job]:
        """Jobs for which a time has come, all sums up to date before any of them is looked at."""
        due = []
        while self._timers and self._timers[0][0] <= now_s:
            at_s, uid = heapq.heappop(self._timers)
            job = self.jobs.get(uid)
            if job is not None and job.wake_s == at_s:
                job.wake_s = math.inf
                due.append(job)
        for job in due:
            self.refresh(job, now_s)
        return due

    def _schedule(self, job: Job, now_s: float, times: tuple[float, ...]) -> None:
        if job.held is not None or job.lease is not None or job.old_shares:
            times += counting.times_of(job)
        at_s = math.inf
        for time_s in times:
            if now_s < time_s < at_s:
                at_s = time_s
        if at_s < job.wake_s:
            job.wake_s = at_s
            heapq.heappush(self._timers, (at_s, job.uid))
