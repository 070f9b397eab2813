"""A job's times moved to another machine's clock, whose offset is known between two bounds.

The careful reading of every time: what may be in use ends later than it does, what was confirmed was confirmed earlier
than it was. Nothing is forgotten and nothing counts from now on, unlike `counting.rebase` for a clock that nobody
knows. Durations stay.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from rampmeter_coordinator.model.failures import Failures
from rampmeter_coordinator.model.history import History
from rampmeter_coordinator.model.particulars import Save, Turn
from rampmeter_coordinator.model.progress import Progress
from rampmeter_coordinator.model.records import Job, Lease, Offer, OldShare

LATER: Mapping[type, tuple[str, ...]] = {
    Job: ("registered_s", "answered_s"),  # a silent job counts for a time after something was last said to it
    Lease: ("ready_by_s",),
    Offer: ("until_s",),
    OldShare: ("until_s",),
    History: ("credited_s",),  # no time is credited twice
}
EARLIER: Mapping[type, tuple[str, ...]] = {
    Job: ("contact_s", "answered_received_s", "snapshot_s"),
    Lease: ("granted_s", "order_s", "reported_s", "ready_at_s", "deadline_at_s"),
    Turn: ("asked_s", "queued_since_s", "save_since_s"),
    Save: ("begun_s",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockOffset:
    """Own time = other time + D with earlier_s <= D <= later_s."""

    earlier_s: float
    later_s: float


def shift_records(records: Mapping[str, bytes], offset: ClockOffset) -> dict[str, bytes]:
    """Stored records of the clock that `offset` is from, as records of the own clock."""
    moved = {}
    for uid, raw in records.items():
        job = Job.from_bytes(raw)
        shift(job, offset)
        moved[uid] = job.to_bytes()
    return moved


def shift_meta(meta: bytes, offset: ClockOffset) -> bytes:
    """The stored figures of the pool as a whole, likewise."""
    kept = msgspec.json.decode(meta)
    failures = Failures.from_dict(kept.get("failures", {}))
    failures.shift(offset.later_s)
    return msgspec.json.encode(kept | {"failures": failures.to_dict()})


def shift(job: Job, offset: ClockOffset) -> None:
    """Move every time of `job`."""
    _move(job, offset)
    for share in job.old_shares:
        _move(share, offset)
    if job.history is not None:
        _move(job.history, offset)
    if job.turn is not None:
        _move(job.turn, offset)
        if job.turn.save is not None:
            _move(job.turn.save, offset)
    if job.lease is not None:
        _move(job.lease, offset)
        job.lease.progress = Progress()
        for offer in job.lease.offers:
            _move(offer, offset)


def _move(record: Any, offset: ClockOffset) -> None:
    kind = type(record)
    for names, by_s in ((LATER.get(kind, ()), offset.later_s), (EARLIER.get(kind, ()), offset.earlier_s)):
        for name in names:
            at_s = getattr(record, name)
            if at_s is not None:
                setattr(record, name, at_s + by_s)
