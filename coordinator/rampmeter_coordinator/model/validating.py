"""Everything that must hold in a pool's memory after every command, looked at from the records alone.

For tests after each event, in production by sample. Walks over all jobs and works every sum out anew, so that a running
sum that has drifted is seen too. Changes nothing.
"""

from collections.abc import Iterator

from rampmeter_coordinator.model import counting
from rampmeter_coordinator.model.records import Job
from rampmeter_coordinator.model.state import PoolState


class BrokenInvariant(AssertionError):
    """The pool's memory contradicts itself: a bug. Says what, and of which job."""


def validate(state: PoolState, now_s: float) -> None:
    """Raise BrokenInvariant with all that does not hold at `now_s`."""
    broken = [*_of_jobs(state), *_of_sums(state, now_s)]
    if broken:
        raise BrokenInvariant(f"pool {state.config.name}: " + "; ".join(broken))


def _of_jobs(state: PoolState) -> Iterator[str]:
    fences = [job.lease.fence for job in state.jobs.values() if job.lease is not None]
    if len(set(fences)) != len(fences):
        yield "two leases have one fence"
    for uid, job in state.jobs.items():
        for complaint in _of_job(state, job):
            yield f"job {uid}: {complaint}"


def _of_job(state: PoolState, job: Job) -> Iterator[str]:
    if (job.uid in state.live) != (job.lease is not None):
        yield "its lease and the list of live leases disagree"
    if (job.uid in state.waiting) != (job.waiter is not None):
        yield "its waiter and the list of waiters disagree"
    if job.waiter is not None and (job.held is None or job.lease is not None):
        yield "it waits without a held request, or with a lease"
    if job.held is not None and job.held.seq <= job.answered_seq:
        yield "a request that was answered is held"
    if job.seq < job.answered_seq:
        yield "an answer to a request that never came"
    if job.lease is not None:
        if len(job.lease.offers) > 2 or any(offer.bytes_per_s < 0 for offer in job.lease.offers):
            yield "more than two offers, or a negative one"
        if not job.lease.ready and any(offer.bytes_per_s for offer in job.lease.offers):
            yield "an armed lease has a rate"
    if len(job.safe_offers) > 1 + job.seq:
        yield "more safe rates than answers"


def _of_sums(state: PoolState, now_s: float) -> Iterator[str]:
    silent = sum(counting.safe_counted(job, state.config, now_s) for job in state.jobs.values())
    if silent != state.silent_sum:
        yield f"silent jobs count {state.silent_sum}, but their records say {silent}"
    if state.in_grace:  # what came back is counted as told
        return
    for lane in state.lanes:
        leased = sum(counting.leased(job, now_s) for job in state.holders(lane))
        if leased > state.highest_ceiling(lane, now_s):
            yield f"{lane} leases of {leased} bytes/s, above every budget that was in force"
