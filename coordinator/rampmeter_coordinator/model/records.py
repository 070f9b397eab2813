"""The hot state of one job: mutable slotted records, owned by the ledger, changed through its entry point only.

What a restart must not forget is written as JSON (`to_bytes`); who waits on an open connection is not. Times are
seconds of the coordinator's clock and compare only within one boot.
"""

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any

from rampmeter.core.decode import build, decode_answer, encode
from rampmeter.core.messages import (
    AnyAnswer,
    Fence,
    GoneReason,
    Kind,
    LeaseState,
    Plan,
    RateReason,
    WaitReason,
)

INFINITY = math.inf


@dataclass(slots=True, kw_only=True)
class Offer:
    """What one answer allowed: a rate until a time. It counts until a later offer is confirmed or its time is over."""

    seq: int
    bytes_per_s: int
    until_s: float


@dataclass(slots=True, kw_only=True)
class SafeOffer:
    """The safe rate of plan `number` in one answer, and its times; `seq` 0 = held from before we knew the job."""

    seq: int
    number: int
    bytes_per_s: int
    after_s: float
    for_s: float


@dataclass(slots=True, kw_only=True)
class OldShare:
    """What a fenced attempt may still be using, until it must have stopped."""

    bytes_per_s: int
    until_s: float


@dataclass(slots=True, kw_only=True)
class Lease:
    """A live lease. `offers` has the confirmed offer first and at most one unconfirmed behind it."""

    fence: Fence
    kind: Kind
    state: LeaseState
    granted_s: float
    offers: list[Offer]
    reason: RateReason
    ready: bool = False
    ready_by_s: float | None = None
    num_bytes: int | None = None
    max_bytes_per_s: int | None = None
    done_bytes: int = 0
    reported_s: float | None = None
    achieved_bytes_per_s: int = 0


@dataclass(slots=True, kw_only=True)
class Waiter:
    """A slot request that is held: its client is connected and may be granted."""

    since_s: float
    kind: Kind
    reason: WaitReason
    num_bytes: int | None
    max_bytes_per_s: int | None
    ready_in_s: float
    started: bool
    urgent: bool


@dataclass(slots=True, kw_only=True)
class Held:
    """A request without an answer yet, to be answered at `until_s` at the latest."""

    seq: int
    received_s: float
    until_s: float


@dataclass(slots=True, kw_only=True)
class Learned:
    """Smoothed samples of committed saves; None until there is one."""

    stall_s: float | None = None
    write_s: float | None = None
    lead_s: float | None = None
    num_samples: int = 0


@dataclass(slots=True, kw_only=True)
class Job:
    """One job, its newest attempt and what older ones may still use."""

    uid: str
    name: str
    attempt: int
    claim: str
    num_gpus: int
    registered_s: float
    plan: Plan
    num_bytes: int | None = None
    mtbf_s: float | None = None
    restart_s: float | None = None
    interval_min_s: float | None = None
    interval_max_s: float | None = None
    synchronous: bool = False
    seq: int = 0
    answered_seq: int = 0
    answered_received_s: float | None = None
    answered_s: float = 0.0
    answer: AnyAnswer | None = None
    contact_s: float | None = None
    safe_offers: list[SafeOffer] = field(default_factory=list)
    old_shares: list[OldShare] = field(default_factory=list)
    lease: Lease | None = None
    learned: Learned = field(default_factory=Learned)
    step: int = 0
    committed_step: int | None = None
    snapshot_s: float | None = None
    num_committed: int = 0
    num_failed: int = 0
    num_skipped: int = 0
    num_ungoverned: int = 0
    num_not_ready: int = 0
    ended_fence: Fence | None = None
    ended_reason: GoneReason = GoneReason.EXPIRED
    queued_since_s: float | None = None
    asked_s: float = 0.0
    finished: bool = False
    waiter: Waiter | None = None
    held: Held | None = None
    wake_s: float = INFINITY
    planned_price: float | None = None
    """The price under which the plan was made; None where it has to be looked at again."""

    def to_bytes(self) -> bytes:
        """The record as JSON, without what lives on a connection."""
        fields = {name: getattr(self, name) for name in _STORED}
        fields["plan"] = json.loads(encode(self.plan))
        fields["answer"] = json.loads(encode(self.answer)) if self.answer else None
        for name in ("safe_offers", "old_shares"):
            fields[name] = [asdict(item) for item in fields[name]]
        fields["lease"] = asdict(self.lease) if self.lease else None
        fields["ended_fence"] = asdict(self.ended_fence) if self.ended_fence else None
        fields["learned"] = asdict(self.learned)
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, raw: bytes) -> "Job":
        """The record that `to_bytes` wrote. Unknown keys of a newer writer are dropped."""
        fields: dict[str, Any] = {k: v for k, v in json.loads(raw).items() if k in _STORED}
        fields["plan"] = build(Plan, fields["plan"])
        fields["answer"] = decode_answer(json.dumps(fields["answer"]).encode()) if fields["answer"] else None
        fields["safe_offers"] = [SafeOffer(**item) for item in fields["safe_offers"]]
        fields["old_shares"] = [OldShare(**item) for item in fields["old_shares"]]
        fields["lease"] = _lease(fields["lease"]) if fields["lease"] else None
        fields["learned"] = Learned(**fields["learned"])
        fields["ended_fence"] = Fence(**fields["ended_fence"]) if fields["ended_fence"] else None
        fields["ended_reason"] = GoneReason(fields["ended_reason"])
        return cls(**fields)


_PASSING = ("waiter", "held", "wake_s", "planned_price")
_STORED = tuple(name for name in Job.__dataclass_fields__ if name not in _PASSING)


def _lease(fields: dict[str, Any]) -> Lease:
    enums = {
        "fence": Fence(**fields["fence"]),
        "kind": Kind(fields["kind"]),
        "state": LeaseState(fields["state"]),
        "reason": RateReason(fields["reason"]),
        "offers": [Offer(**item) for item in fields["offers"]],
    }
    return Lease(**(fields | enums))
