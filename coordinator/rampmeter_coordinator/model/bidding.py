"""Who is served first: urgent saves, saves that go on, the starving, then the highest bid. Pure functions over records.

A bid is what a byte written now is worth to a job, in GPU-seconds per byte (`core.interval.Load.bid`); it grows with
the age of the job's newest durable state, so the order is made anew whenever it is needed. Restores go by the GPUs that
they let work again per second of reading, and what is read in the background comes after all else. Knows nothing of who
gets how much: `admission` and `arming` do.
"""

from collections.abc import Iterable
from dataclasses import replace

from rampmeter.core.messages import Kind
from rampmeter_coordinator.model import planning
from rampmeter_coordinator.model.records import Job, Waiter

STARVING_INTERVALS = 2.0
"""A job whose unsaved work is older than this many of its planned intervals is passed by nobody."""

_LAST = 5
"""Behind all restores, and all saves where they stand in the same line."""

Rank = tuple[int, float, float, str]
Ranked = tuple[Rank, Job]


def in_order(jobs: Iterable[Job], budget_bytes_per_s: int, now_s: float) -> list[Ranked]:
    """Waiting jobs, the one to be served next first; in a shared pool restores stand among the saves."""
    reads: list[Ranked] = []
    writes: list[Ranked] = []
    background: list[Ranked] = []
    for job in jobs:
        if job.waiter is not None:
            found = (rank(job, job.waiter, budget_bytes_per_s, now_s), job)
            if job.waiter.background:
                background.append(found)
            else:
                (reads if job.waiter.kind is Kind.READ else writes).append(found)
    reads.sort()
    writes.sort()
    background.sort()
    return _merged(reads, writes, budget_bytes_per_s, now_s) + background


def bid_of(job: Job, waiter: Waiter, now_s: float) -> float:
    """What a byte written now is worth to the job, in GPU-seconds per byte; 0 for a save of unknown size."""
    load = planning.load_of(job)
    if waiter.num_bytes != load.num_bytes:  # of a save that goes on: what is left of it
        load = replace(load, num_bytes=waiter.num_bytes or 0)
    return load.bid(now_s - waiter.unsaved_since_s)


def live_price(waiting: Iterable[Job], now_s: float) -> float:
    """The largest waiting bid, in GPU-seconds per byte: what a byte of this storage is worth right now."""
    waiters = ((job, job.waiter) for job in waiting)
    bids = (bid_of(job, waiter, now_s) for job, waiter in waiters if waiter and waiter.kind is Kind.WRITE)
    return max(bids, default=0.0)


def is_starving(job: Job, waiter: Waiter, now_s: float) -> bool:
    """Counted in planned intervals, never in own periods: jobs that are cheap to lose are late by design."""
    if waiter.kind is Kind.READ:
        return False
    return now_s - waiter.unsaved_since_s > STARVING_INTERVALS * job.plan.interval_s


def rank(job: Job, waiter: Waiter, budget_bytes_per_s: int, now_s: float) -> Rank:
    """The place among waiters of the same kind: the smallest is served first."""
    if waiter.background:
        return (_LAST, 0.0, waiter.since_s, job.uid)
    if waiter.kind is Kind.READ:
        return _read_rank(job, waiter, budget_bytes_per_s)
    return _write_rank(job, waiter, now_s)


def _write_rank(job: Job, waiter: Waiter, now_s: float) -> Rank:
    if waiter.deadline_at_s is not None:
        return (0, waiter.deadline_at_s, waiter.since_s, job.uid)
    if waiter.started:
        granted_s = job.turn.save_since_s if job.turn else None
        return (1, granted_s or waiter.since_s, waiter.since_s, job.uid)
    if is_starving(job, waiter, now_s):
        return (2, -(now_s - waiter.unsaved_since_s) / job.plan.interval_s, waiter.since_s, job.uid)
    if waiter.num_bytes is None:
        return (4, 0.0, waiter.since_s, job.uid)
    return (3, -bid_of(job, waiter, now_s), waiter.since_s, job.uid)


def _read_rank(job: Job, waiter: Waiter, budget_bytes_per_s: int) -> Rank:
    return (
        0,
        -relief(job, waiter.num_bytes, waiter.max_bytes_per_s, budget_bytes_per_s),
        waiter.since_s,
        job.uid,
    )


def relief(job: Job, num_bytes: int | None, max_bytes_per_s: int | None, budget_bytes_per_s: int) -> float:
    """GPUs that work again per second of reading `num_bytes`; 0 where the size is unknown."""
    return job.num_gpus / service_s(num_bytes, max_bytes_per_s, budget_bytes_per_s) if num_bytes else 0.0


def service_s(num_bytes: int, max_bytes_per_s: int | None, budget_bytes_per_s: int) -> float:
    """How long the storage is taken by so many bytes, in seconds, when the job has it for itself."""
    return max(1.0, num_bytes) / max(1, min(max_bytes_per_s or budget_bytes_per_s, budget_bytes_per_s))


def _merged(reads: list[Ranked], writes: list[Ranked], budget_bytes_per_s: int, now_s: float) -> list[Ranked]:
    """Restores first, except behind saves that are urgent, started or overdue enough (policy of blocked reads)."""
    if not reads or not writes:
        return reads or writes
    merged = []
    for read in reads:
        while writes and _goes_before(writes[0][1], read[1], budget_bytes_per_s, now_s):
            merged.append(writes.pop(0))
        merged.append(read)
    return merged + writes


def _goes_before(write: Job, read: Job, budget_bytes_per_s: int, now_s: float) -> bool:
    """A due save k goes before a blocked read b if 2 q_k (x_k - D_k) / (M_k C_k) > q_b / rem_b.

    q GPUs, x unsaved work, D own period, M mean time between failures, C the seconds of storage that the save takes,
    rem those of the read. From a comparison of orders on a shared store in which idle readers met due writers.
    """
    waiter, reader = write.waiter, read.waiter
    assert waiter is not None
    assert reader is not None
    if waiter.deadline_at_s is not None or waiter.started:
        return True
    if not waiter.num_bytes:
        return False
    overdue_s = now_s - waiter.unsaved_since_s - write.plan.request_after_s
    taken_s = service_s(waiter.num_bytes, waiter.max_bytes_per_s, budget_bytes_per_s)
    gain = 2.0 * write.num_gpus * overdue_s / (planning.load_of(write).mtbf_s * taken_s)
    return gain > relief(read, reader.num_bytes, reader.max_bytes_per_s, budget_bytes_per_s)
