"""The whole memory of one pool: its jobs, its timers, its answers; every change to a job is announced with `touch`.

Decides nothing: `leasing` and `registry` do. What a store must keep, and who must be answered, is collected here.
"""

import math
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, fields

import msgspec

from rampmeter.core.messages import AnyAnswer, FailReason, Fence, LeaseState, Noted, Request
from rampmeter_coordinator.model import counting, goodput
from rampmeter_coordinator.model.bandwidth import Bandwidth
from rampmeter_coordinator.model.capacity import Capacity
from rampmeter_coordinator.model.commands import Changes, Refusal, Reply
from rampmeter_coordinator.model.failures import MOST_GPUS, Failures
from rampmeter_coordinator.model.goodput import Account, Cause
from rampmeter_coordinator.model.history import History
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.model.records import Job, Lease
from rampmeter_coordinator.model.timers import Timers
from rampmeter_coordinator.model.views import TimelineRow, Totals, no_failures

MAX_TIMELINE_ROWS = 4096
MAX_SEEN_EPOCH = 2**52
"""Half of what a fence can hold. Milliseconds and restarts never get there: whoever has seen more is wrong, and one who
lies leaves the other half for the restarts to come."""


def fence_epoch_of(meta: bytes) -> int:
    """Of the newest fences that a kept pool may have given out; 0 where a release kept it that did not say."""
    epoch: int = msgspec.json.decode(meta).get("epoch", 0)
    return epoch


class PoolState(Bandwidth):
    """Owned by one Ledger. Times are seconds of the coordinator's clock."""

    def __init__(self, config: PoolConfig, *, epoch: int, seed: int, grace_until_s: float) -> None:
        super().__init__(config)
        self.grace_until_s = grace_until_s
        self.rng = random.Random(seed)
        self.price = config.base_price_gpu_s_per_byte
        """What plans are made for, in GPU-seconds per byte; set by `set_price`."""
        self.look_again_s = math.inf
        """When somebody may have to be armed: nothing else happens then."""
        self.failures = Failures()
        self._account = goodput.NOTHING
        self._timeline: deque[tuple[float, str, str, Fence, LeaseState, int]] = deque(
            maxlen=MAX_TIMELINE_ROWS
        )
        self._counts = dict.fromkeys((field.name for field in fields(Totals) if field.type is int), 0)
        self._failed_saves = no_failures()
        self._meta_bytes: bytes | None = None
        self._kept_cap = 0
        self._epoch = epoch
        """Of the fences that are given out; above that of the commits once an agent has seen a later one."""
        self._counter = 0
        self._timers = Timers()
        self._dirty: set[str] = set()
        self._replies: list[Reply] = []

    # -- memory ------------------------------------------------------------------------------------------------

    def restore(self, records: Mapping[str, bytes], meta: bytes) -> None:
        """Take up what a store kept. In grace its times belong to another boot: what was held counts until its end."""
        kept = msgspec.json.decode(meta)
        totals = asdict(Totals(**kept["totals"]))
        self._failed_saves |= totals.pop("failed_saves")
        self._counts |= totals
        self.capacity = Capacity.from_dict(kept.get("capacity", {}), self.config.budget_bytes_per_s)
        self.price = max(self.price, kept.get("price", 0.0))
        self.failures = Failures.from_dict(kept.get("failures", {}))
        self._account = goodput.packed(goodput.from_dict(kept.get("account", {})))
        self.jobs = {job.uid: job for job in map(Job.from_bytes, records.values())}
        for job in self.jobs.values():
            job.belief = self.failures.belief
        held = [(job.lease.granted_s, job) for job in self.jobs.values() if job.lease is not None]
        for _, job in sorted(held, key=lambda pair: pair[0]):
            self.hold(job)

    def wake_up(self, now_s: float) -> list[Job]:
        """The first look at the clock: all sums and timers, and every job as due, for time has passed for each.

        Grace that goes on from an earlier life may end before the leases given in it: they count for their full time.
        """
        held_until_s = max(self.grace_until_s, now_s + self.config.grace_s)
        if self.in_grace:
            self.failures.rebase(now_s)
        for job in self.jobs.values():
            if self.in_grace:  # kept at once: no times of another boot under the name of this one
                counting.rebase(job, now_s, held_until_s)
                self._dirty.add(job.uid)
            self.refresh(job, now_s)
        self.take_stock(now_s)
        return list(self.jobs.values())

    def remove(self, job: Job) -> None:
        """A job is forgotten; only for jobs that may not use anything."""
        self.drop(job)
        self._dirty.add(job.uid)

    def take_changes(self) -> Changes:
        """What changed since the last call, as a store keeps it."""
        records = {uid: self.jobs[uid].to_bytes() if uid in self.jobs else None for uid in self._dirty}
        self._dirty = set()
        return Changes(records=records, meta=self._meta())

    def _meta(self) -> bytes:
        """Figures of the pool as a whole, written anew only when one of them has moved."""
        if self._meta_bytes is None or self._kept_cap != self.capacity.cap_bytes_per_s:
            self._kept_cap = self.capacity.cap_bytes_per_s
            kept = {
                "totals": {**self._counts, "failed_saves": self._failed_saves},
                "capacity": self.capacity.to_dict(),
                "price": self.price,
                "failures": self.failures.to_dict(),
                "account": asdict(self.account),
                "epoch": self._epoch,
            }
            self._meta_bytes = msgspec.json.encode(kept)
        return self._meta_bytes

    # -- changes -----------------------------------------------------------------------------------------------

    def touch(self, job: Job, now_s: float) -> None:
        """The job's record changed: bring the sums and its timer up to date, and have it stored."""
        self.refresh(job, now_s)
        self._dirty.add(job.uid)

    def refresh(self, job: Job, now_s: float) -> None:
        """Time has passed for this job: bring the sums and its timer up to date."""
        from_s, until_s = self.recount(job, now_s)
        next_s = math.inf
        if job.held is not None or job.lease is not None or job.old_shares:
            next_s = counting.ends_next_s(job, now_s)
        if now_s < from_s < next_s:
            next_s = from_s
        if now_s < until_s < next_s:
            next_s = until_s
        self._timers.set(job, next_s)

    @property
    def totals(self) -> Totals:
        """What has happened, counted."""
        return Totals(**self._counts, failed_saves=dict(self._failed_saves))

    def count(self, name: str, amount: int = 1) -> None:
        """Add to one of the totals."""
        self._counts[name] += amount
        self._meta_bytes = None

    def count_failed_saves(self, reason: FailReason, amount: int) -> None:
        """Saves have failed; agents of before did not say why."""
        self._failed_saves[FailReason.UNKNOWN if reason is FailReason.NONE else reason] += amount
        self._meta_bytes = None

    @property
    def account(self) -> Account:
        """What became of the GPU-seconds of all jobs, also of those that are forgotten."""
        return goodput.unpacked(self._account)

    def charge(self, job: Job, cause: Cause | None, duration_s: float) -> None:
        """Time of this job was lost by a cause; or it was observed."""
        if duration_s > 0.0:
            history = self.history_of(job)
            history.account = goodput.charged(history.account, cause, duration_s)
            num_gpus = min(job.num_gpus, MOST_GPUS)  # an absurd claim must not stand for the pool for ever
            self._account = goodput.charged(self._account, cause, duration_s * num_gpus)
            self._meta_bytes = None

    def history_of(self, job: Job) -> History:
        """What the attempts of this job have shown; begun where there is none."""
        if job.history is None:
            job.history = History(credited_s=job.registered_s)
            job.load = None  # M is of it from now on: the same but for its last digit, which a replay shows
        return job.history

    def set_price(self, price: float) -> None:
        """Plans follow this price from now on; kept, so that a restart tells nobody anything new."""
        self.price = price
        self._meta_bytes = None

    def outgrow(self, seen_epoch: int) -> None:
        """An agent has seen this epoch. A later one than ours is of a life that the store has forgotten, under a clock
        that was set back since: fences are above it from now on. Commits are not: that is no right to take a pool.
        """
        if self._epoch < seen_epoch < MAX_SEEN_EPOCH:
            self._epoch = seen_epoch + 1
            self._meta_bytes = None

    def next_fence(self) -> Fence:
        """A fence number higher than any before in this life, in those that the store knows, or that an agent told."""
        self._counter += 1
        return Fence(epoch=self._epoch, counter=self._counter)

    def note_rate(self, job: Job, lease: Lease, bytes_per_s: int, now_s: float) -> None:
        """A lease's rate or state changes: one row of the timeline."""
        self._timeline.append((now_s, job.uid, job.name, lease.fence, lease.state, bytes_per_s))

    def timeline(self) -> tuple[TimelineRow, ...]:
        """The newest rows of the timeline, the oldest first."""
        return tuple(
            TimelineRow(at_s=at_s, job_uid=uid, job=name, fence=fence, state=state, bytes_per_s=rate)
            for at_s, uid, name, fence, state, rate in self._timeline
        )

    # -- answers -----------------------------------------------------------------------------------------------

    def reply(self, job: Job, body: AnyAnswer, received_s: float, now_s: float) -> None:
        """Answer the job's request `body.seq`, received at `received_s`; kept for replays."""
        job.answered_seq, job.answered_received_s, job.answered_s = body.seq, received_s, now_s
        job.answer = None if type(body) is Noted and body.plan is None and not body.confirm else body
        job.held = None
        self._replies.append(Reply(job_uid=job.uid, attempt=job.attempt, seq=body.seq, body=body))
        if body.plan is not None:
            job.safe_offers += (counting.safe_offer(body.seq, body.plan),)
        elif now_s < job.wake_s < math.inf and self.is_steady(job):
            self._dirty.add(job.uid)  # its silence has moved later, that is all
            return
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
        self._send(job, job.answered_seq, job.last_answer)
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

    # -- time --------------------------------------------------------------------------------------------------

    @property
    def in_grace(self) -> bool:
        """Only holders are served: set back by the ledger once the time is over."""
        return self.grace_until_s > 0.0

    def wake_at_s(self) -> float | None:
        """The earliest time at which something happens by itself."""
        learn_s = self.capacity.wake_at_s()
        at_s = min(
            self._timers.next_s,
            self.look_again_s,
            self.grace_until_s if self.in_grace else math.inf,
            math.inf if learn_s is None else learn_s,
        )
        return None if at_s == math.inf else at_s

    def time_has_come(self, now_s: float) -> bool:
        """Whether the time alone means something now: for a job, for the end of grace or for a cap that rises."""
        return (
            now_s >= self._timers.next_s
            or 0.0 < self.grace_until_s <= now_s
            or self.capacity.cap_bytes_per_s != self.capacity.ceiling_bytes_per_s
        )

    def take_due(self, now_s: float) -> list[Job]:
        """Jobs for which a time has come, all sums up to date before any of them is looked at."""
        due = self._timers.take_due(self.jobs, now_s)
        for job in due:
            self.refresh(job, now_s)
        return due
