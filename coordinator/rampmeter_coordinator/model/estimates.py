"""What is believed of a job's saves: learned from its releases, checked against what the coordinator saw itself. Pure.

A save takes no longer than since its slot was granted, and writes no more than its lease allowed. A report of more than
that is absurd: it is counted and teaches nothing, neither a figure of the job nor what storage sustains. What passes
moves a figure robustly: one sample moves it by a factor of two at most, three in a row follow a tenfold change. A job
is never compared with others. Ends no lease and refuses no request.
"""

from rampmeter.core.interval import DEFAULT_EPS, Load
from rampmeter.core.messages import Kind, Release, Renew
from rampmeter_coordinator.model.particulars import Evidence, Save
from rampmeter_coordinator.model.records import Job, Lease, Waiter, turn_of

WEIGHT_OF_NEW = 0.3
"""Weight of a new sample that is not far off."""

FAR = 2.0
"""A sample that is off by more than this factor is followed at once, by this factor."""

SMALL_S = 0.1
SMALL_BYTES = 1 << 24
"""Below these a factor says nothing. Bytes are counted in windows of up to 16 MiB."""

CLOCK_FACTOR = 1.05
ROUND_TRIP_S = 2.0
"""The agent's clock may run a little faster than ours, and what it says was on its way for a while."""


# -- what was seen -----------------------------------------------------------------------------------------------------


def granted(job: Job, waiter: Waiter, now_s: float) -> None:
    """A slot is granted: for a new save, or one that goes on. The agent's own maximal rate comes with the request.

    Before a preemption an agent may begin without its grant, and what it `started` before we knew it began unseen.
    """
    turn = turn_of(job)
    if turn.save is None or turn.save.kind is not waiter.kind:
        unseen = waiter.started or waiter.deadline_at_s is not None
        turn.save = Save(kind=waiter.kind, begun_s=None if unseen else now_s)
    if waiter.kind is Kind.WRITE and waiter.max_bytes_per_s:
        known = evidence_of(job)
        rate, known.of_rate = _next(
            known.max_bytes_per_s, known.of_rate, waiter.max_bytes_per_s, small=0, weight=1.0
        )
        known.max_bytes_per_s = int(rate or 0)


def ready(lease: Lease, now_s: float) -> None:
    """Its first byte is in hand. If it had a rate before, that counts until the answer has arrived."""
    rate = lease.offers[0].bytes_per_s if lease.offers else 0
    lease.allowed_bytes += rate * (now_s - lease.granted_s + ROUND_TRIP_S)


def is_absurd_report(job: Job, lease: Lease, request: Renew | Release, now_s: float) -> bool:
    """Whether the totals of a report are more than its lease allowed, less than was reported before, or take longer
    than there was time. Keeps the account of what the lease allowed; call it once per report, before it is taken in.

    In sum, not from report to report: bytes are counted a window late, and a request may be long on its way.
    """
    rate = _highest_since_last(lease)
    since_s = lease.granted_s if lease.reported_s is None else lease.reported_s
    lease.allowed_bytes += rate * (now_s - since_s)
    if lease.goes_on:  # what came before it is seen at the end of the save only
        lease.allowed_bytes += request.done_bytes
        return False
    allowed_bytes = CLOCK_FACTOR * lease.allowed_bytes + ROUND_TRIP_S * rate + SMALL_BYTES
    if not lease.done_bytes <= request.done_bytes <= allowed_bytes:
        return True
    save = job.turn.save if job.turn else None
    if save is None or save.begun_s is None:
        return False
    return _spent_s(request) > _longest_s(save.begun_s, now_s)


def is_absurd_save(save: Save | None, request: Release, most_bytes_per_s: int | None, now_s: float) -> bool:
    """Whether a committed save cannot have been as its release says.

    most_bytes_per_s   what no lease is above; None = there is no such rate
    """
    if request.done_bytes == 0:
        return True
    if save is None or save.begun_s is None:
        return False
    longest_s = _longest_s(save.begun_s, now_s)
    times = (request.stall_s, request.lead_s, request.write_s, _spent_s(request))
    if any(time_s is not None and time_s > longest_s for time_s in times):
        return True
    return most_bytes_per_s is not None and request.done_bytes > most_bytes_per_s * longest_s + SMALL_BYTES


def doubt(job: Job, save: Save | None) -> None:
    """Something absurd was said of this save of the job: whatever else is said of it teaches nothing."""
    evidence_of(job).num_absurd += 1
    if save is not None:
        save.is_doubted = True


def _highest_since_last(lease: Lease) -> int:
    """Of the rates that were in force since the report before: that of then, or that of its answer."""
    rate = lease.offers[0].bytes_per_s if lease.offers else 0
    before = lease.reported_rate
    return rate if before is None or before < rate else before


def _spent_s(request: Renew | Release) -> float:
    return request.throttled_s + request.blocked_s + request.busy_s


def _longest_s(since_s: float, now_s: float) -> float:
    return CLOCK_FACTOR * (now_s - since_s) + ROUND_TRIP_S


# -- what is learned ---------------------------------------------------------------------------------------------------


def evidence_of(job: Job) -> Evidence:
    """What stands behind the job's figures; none for most jobs before their first save."""
    if job.evidence is None:
        job.evidence = Evidence()
    return job.evidence


def believe(job: Job, num_bytes: int | None, stall_s: float | None, write_s: float | None) -> None:
    """Cold start: what a registration says counts until it is measured, and never replaces what was."""
    known = job.known
    if not known.of_bytes:
        job.num_bytes = num_bytes
    if not known.of_stall:
        job.stall_s = stall_s
    if not known.of_write and known.write_s != write_s:
        evidence_of(job).write_s = write_s


def learn(job: Job, request: Release, load: Load) -> None:
    """Take in a committed save that can have been. `load`: what the job asked for until now."""
    known, write_s = evidence_of(job), request.write_s
    at_work_s = None if write_s is None else max(0.0, write_s - request.throttled_s)
    num_bytes, known.of_bytes = _next(
        job.num_bytes, known.of_bytes, request.done_bytes, small=SMALL_BYTES, weight=1.0
    )
    job.num_bytes = int(num_bytes or 0)
    job.stall_s, known.of_stall = _next(job.stall_s, known.of_stall, request.stall_s)
    known.at_work_s, _ = _next(known.at_work_s, known.of_write, at_work_s)
    known.write_s, known.of_write = _next(known.write_s, known.of_write, write_s)
    known.lead_s, known.of_lead = _next(known.lead_s, known.of_lead, request.lead_s)
    if request.eps is not None:  # begins with the prior, so a few samples are blended with it
        known.eps = followed(eps_of(job), request.eps, small=DEFAULT_EPS)
        known.of_eps += 1
    known.num_gpus, known.mtbf_s = load.num_gpus, load.mtbf_s


def eps_of(job: Job) -> float:
    """The slow-down of steps beside a flush; the prior until there is a sample."""
    eps = job.known.eps
    return DEFAULT_EPS if eps is None else eps


def borne_out(job: Job, mtbf_s: float) -> tuple[int, float]:
    """GPUs and M as far as saves bear them out: what nobody can measure raises what a job asks for by a factor of
    two at most, and by another with each save made under it. A job without a save is believed.
    """
    known = job.known
    if known.num_gpus is None or known.mtbf_s is None:
        return job.num_gpus, mtbf_s
    return min(job.num_gpus, int(FAR * known.num_gpus)), max(mtbf_s, known.mtbf_s / FAR)


def followed(old: float, new: float, *, small: float = SMALL_S, weight: float = WEIGHT_OF_NEW) -> float:
    """The estimate after one more sample. Below `small` a factor says nothing."""
    most = FAR * max(old, small)
    least = old / FAR if old > small else 0.0
    if least <= new <= most:
        return old + weight * (new - old)
    return min(max(new, least), most)


def _next(
    old: float | None,
    num_samples: int,
    new: float | None,
    *,
    small: float = SMALL_S,
    weight: float = WEIGHT_OF_NEW,
) -> tuple[float | None, int]:
    """Estimate and number of samples; the first sample replaces what was believed."""
    if new is None:
        return old, num_samples
    if num_samples == 0 or old is None:
        return new, 1
    return followed(old, new, small=small, weight=weight), num_samples + 1
