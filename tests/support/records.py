"""Jobs as the ledger remembers them, made by hand: waiting for a slot or holding a lease."""

from typing import Any

from msgspec.structs import replace

from rampmeter.core.messages import Fence, Kind, LeaseState, RateReason, WaitReason
from rampmeter_coordinator.model.estimates import evidence_of
from rampmeter_coordinator.model.particulars import Terms, Turn
from rampmeter_coordinator.model.records import Job, Lease, Planned, Waiter, turn_of
from support.answers import plan

NOW = 100_000.0
FIGURES = ("stall_s", "write_s", "lead_s")
_JOB_FIELDS = ("num_gpus", "mtbf_s", "synchronous", "snapshot_s", "save_since_s", "tenant", *FIGURES)


def job(name: str, *, interval_s: float = 100.0, **figures: Any) -> Job:
    """8 GPUs, M = 1 h, registered long ago; its own period is 84.9 s (C = 1 s), its planned interval `interval_s`."""
    defaults = {"num_gpus": 8, "mtbf_s": 3600.0, "registered_s": 0.0}
    one = Job(
        uid=name,
        name=name,
        attempt=1,
        claim=bytes(16),
        plan=planned(interval_s=interval_s, request_after_s=84.9),
        **defaults,
    )
    return with_figures(one, **figures)


def with_figures(one: Job, **figures: Any) -> Job:
    """The job with other fields, of its own or of its parts."""
    for name, value in figures.items():
        if name in Job.__struct_fields__:
            setattr(one, name, value)
        elif name in Terms.__struct_fields__:
            one.terms = replace(one.terms, **{name: value})
        else:
            setattr(turn_of(one) if name in Turn.__struct_fields__ else evidence_of(one), name, value)
    return one


def planned(**more: Any) -> Planned:
    """A plan as the ledger remembers it."""
    said = plan(**more)
    return Planned(**{name: getattr(said, name) for name in Planned.__struct_fields__})


def waiting(name: str, *, age_s: float = 90.0, interval_s: float = 100.0, **more: Any) -> Job:
    """A job whose request for a write of 10,000 bytes is held; `more` are fields of the job or of the request."""
    figures = {key: more.pop(key) for key in _JOB_FIELDS if key in more}
    one = job(name, interval_s=interval_s, **figures)
    request = {
        "since_s": NOW,
        "unsaved_since_s": NOW - age_s,
        "kind": Kind.WRITE,
        "reason": WaitReason.QUEUE,
        "num_bytes": 10_000,
        "max_bytes_per_s": None,
        "ready_in_s": 0.0,
        "started": False,
        "deadline_at_s": None,
    }
    one.waiter = Waiter(**(request | more))
    return one


def holding(name: str, *, interval_s: float = 100.0, **more: Any) -> Job:
    """A job that holds an active lease for a write of 10,000 bytes; `more` are fields of the job or of the lease."""
    figures = {key: more.pop(key) for key in _JOB_FIELDS if key in more}
    one = job(name, interval_s=interval_s, **figures)
    lease = {
        "fence": Fence(epoch=1, counter=1),
        "kind": Kind.WRITE,
        "state": LeaseState.ACTIVE,
        "granted_s": NOW,
        "offers": [],
        "reason": RateReason.FULL,
        "ready": True,
        "num_bytes": 10_000,
        "order_s": NOW,
    }
    one.lease = Lease(**(lease | more))
    return one
