"""Restores and saves on one shared budget: who of those that hold a lease comes first. Pure functions over records.

GPUs that wait for a restore idle; a save that is paused gets older. At every event the cheaper of three is taken: let
the read wait until the save has ended, pause the save (it is put behind the read and gets what is left), or give the
save up, which only pays for a synchronous job whose GPUs would idle. Costs are in GPU-seconds.
"""

import math
from collections.abc import Sequence

from rampmeter.core.messages import Kind
from rampmeter_coordinator.model import admission, bidding, planning
from rampmeter_coordinator.model.arming import ARM_AHEAD_S
from rampmeter_coordinator.model.records import Job, Lease, Waiter


def in_writing_order(jobs: Sequence[Job], budget_bytes_per_s: int, now_s: float) -> list[Job]:
    """Holders of leases: urgent saves by deadline, then saves in start order, blocked reads where they are worth it.

    Background reads get what is left.
    """
    urgent: list[tuple[float, str, Job]] = []
    saves: list[tuple[float, str, Job]] = []
    reads: list[tuple[float, float, str, Job]] = []
    background: list[tuple[float, str, Job]] = []
    for job in jobs:
        lease = _lease(job)
        if lease.deadline_at_s is not None:
            urgent.append((lease.deadline_at_s, job.uid, job))
        elif lease.background:
            background.append((lease.order_s, job.uid, job))
        elif lease.kind is Kind.READ:
            reads.append((-_relief(job, budget_bytes_per_s), lease.order_s, job.uid, job))
        else:
            saves.append((lease.order_s, job.uid, job))
    ordered = [job for _, _, job in sorted(saves)]
    for *_, read in sorted(reads):
        place = len(ordered)
        while place > 0 and pays_to_pause(ordered[place - 1], read, budget_bytes_per_s, now_s):
            place -= 1
        ordered.insert(place, read)
    if urgent:
        ordered = [job for _, _, job in sorted(urgent)] + ordered
    return ordered + [job for _, _, job in sorted(background)] if background else ordered


def is_blocked_read(lease: Lease) -> bool:
    """GPUs idle until it is through."""
    return lease.kind is Kind.READ and not lease.background


def ahead_of_waiter(
    holders: Sequence[Job], reader: Job, waiter: Waiter, budget_bytes_per_s: int, now_s: float
) -> list[Job]:
    """Of the holders in writing order those that a waiting restore would stand behind, had it a lease now."""
    left_s = math.inf
    if waiter.num_bytes is not None:
        left_s = bidding.service_s(waiter.num_bytes, waiter.max_bytes_per_s, budget_bytes_per_s)
    ahead = in_writing_order(holders, budget_bytes_per_s, now_s)
    while ahead and _lease(ahead[-1]).deadline_at_s is None:
        if not _goes_before(ahead[-1], reader.num_gpus, left_s, budget_bytes_per_s, now_s):
            break
        ahead.pop()
    return ahead


def pays_to_pause(save: Job, read: Job, budget_bytes_per_s: int, now_s: float) -> bool:
    """Whether `read` should go before `save`, another read among them: the shorter wait, weighted by GPUs, first."""
    left_s = _left_s(read, budget_bytes_per_s)
    return _goes_before(save, read.num_gpus, left_s, budget_bytes_per_s, now_s)


def _goes_before(
    other: Job, read_gpus: int, read_left_s: float, budget_bytes_per_s: int, now_s: float
) -> bool:
    wait = read_gpus * _left_s(other, budget_bytes_per_s)
    idle_gpus = other.num_gpus if _lease(other).kind is Kind.READ else _idle_gpus(other, now_s)
    return wait > idle_gpus * read_left_s


def pays_to_give_up(
    save: Job, reads: Sequence[Job], price_gpu_s_per_byte: float, budget_bytes_per_s: int, now_s: float
) -> bool:
    """Whether a synchronous save should be given up for blocked reads: cheaper than to wait and than to pause it.

    Its bytes are lost, at the live price, its job stays as old as it is and needs another lead time. Not where all
    depends on unknown sizes, and not where the reads leave a rate that is worth writing at.
    """
    reads = [read for read in reads if _lease(read).ready]  # who is armed takes no bandwidth yet
    if not save.terms.synchronous or not reads or _lease(save).deadline_at_s is not None:
        return False
    most = _lease(save).max_bytes_per_s
    reading = sum(admission.wanted(_lease(read).max_bytes_per_s, budget_bytes_per_s) for read in reads)
    if reading + admission.least(admission.wanted(most, budget_bytes_per_s)) <= budget_bytes_per_s:
        return False
    idle_gpus = _idle_gpus(save, now_s)
    written = _lease(save).done_bytes
    lost_s = bidding.service_s(written, most, budget_bytes_per_s) + (save.known.lead_s or 0.0) + ARM_AHEAD_S
    give_up = idle_gpus * lost_s + price_gpu_s_per_byte * written
    pause = idle_gpus * sum(_left_s(read, budget_bytes_per_s) for read in reads)
    wait = sum(read.num_gpus for read in reads) * _left_s(save, budget_bytes_per_s)
    return give_up < min(wait, pause) < math.inf


def _idle_gpus(save: Job, now_s: float) -> float:
    """GPU-seconds lost per second of a pause: x / M of each GPU, and its work where training waits for the save."""
    unsaved_s = now_s - (save.registered_s if save.snapshot_s is None else save.snapshot_s)
    return save.num_gpus * (
        unsaved_s / planning.load_of(save).mtbf_s + (1.0 if save.terms.synchronous else 0.0)
    )


def _relief(job: Job, budget_bytes_per_s: int) -> float:
    return job.num_gpus / max(1e-3, _left_s(job, budget_bytes_per_s))


def _left_s(job: Job, budget_bytes_per_s: int) -> float:
    """Seconds of storage that it still takes; infinite where the size is unknown."""
    lease = _lease(job)
    if lease.num_bytes is None:
        return math.inf
    left = max(0, lease.num_bytes - lease.done_bytes)
    return bidding.service_s(left, lease.max_bytes_per_s, budget_bytes_per_s)


def _lease(job: Job) -> Lease:
    assert job.lease is not None
    return job.lease
