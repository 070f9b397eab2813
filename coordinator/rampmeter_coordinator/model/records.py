"""The hot state of one job: mutable slotted records, owned by the ledger, changed through its entry point only.

What a restart must not forget is written as MessagePack (`to_bytes`), because that is done at every decision; who waits
on an open connection is not. Times are seconds of the coordinator's clock and compare only within one boot.
"""

import math
from collections.abc import Callable, Collection, Mapping
from operator import methodcaller
from typing import Any, get_type_hints

import msgspec
from msgspec import Raw, Struct, field
from pydantic import TypeAdapter

from rampmeter.core.interval import Load
from rampmeter.core.messages import (
    AnyAnswer,
    Fence,
    Kind,
    LeaseState,
    Noted,
    PlanReason,
    RateReason,
    WaitReason,
)
from rampmeter_coordinator.model.encoding import encode
from rampmeter_coordinator.model.history import PRIOR, Belief, History
from rampmeter_coordinator.model.particulars import (
    NO_EVIDENCE,
    NO_MISHAPS,
    NO_TERMS,
    Evidence,
    Mishaps,
    Record,
    Terms,
    Turn,
)
from rampmeter_coordinator.model.progress import Progress

INFINITY = math.inf


class Offer(Record, kw_only=True):
    """What one answer allowed: a rate until a time. It counts until a later offer is confirmed or its time is over."""

    seq: int
    bytes_per_s: int
    until_s: float


class SafeOffer(Record, kw_only=True):
    """The safe rate of plan `number` in one answer, and its times; `seq` 0 = held from before we knew the job."""

    seq: int
    number: int
    bytes_per_s: int
    after_s: float
    for_s: float


class OldShare(Record, kw_only=True):
    """What a fenced attempt or a revoked lease may still be using, until it must have stopped.

    Of a revoked one no more once the same attempt confirms an answer later than `void_after_seq`.
    """

    bytes_per_s: int
    until_s: float
    kind: Kind = Kind.WRITE
    void_after_seq: int | None = None


class Lease(Record, kw_only=True):
    """A live lease. `offers` has the confirmed offer first and at most one unconfirmed behind it.

    order_s       when its save was first granted: its place among those that write
    ready_at_s    when its first byte is expected, until it is in hand
    deadline_at_s of an urgent save, far away where the notice told none; None = not urgent
    background    of a read that nobody waits for: it comes after all others
    """

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
    order_s: float = 0.0
    ready_at_s: float | None = None
    deadline_at_s: float | None = None
    progress: Progress = field(default_factory=Progress)
    throttled_s: float = 0.0
    blocked_s: float = 0.0
    busy_s: float = 0.0
    """With `done_bytes`: the totals of the newest report."""
    reported_rate: int | None = None
    """The rate that was in force at that report."""
    goes_on: bool = False
    """The save began under an earlier lease, and nothing was reported under this one: the totals have no beginning."""
    allowed_bytes: float = 0.0
    """The most that could be written under its rates up to the newest report."""
    background: bool = False


class Waiter(Record, kw_only=True):
    """A slot request that is held: its client is connected and may be granted.

    since_s          when the job joined the queue
    unsaved_since_s  the work since then would be lost: the age that its bid grows with
    deadline_at_s, background   as in Lease
    """

    since_s: float
    unsaved_since_s: float
    kind: Kind
    reason: WaitReason
    num_bytes: int | None
    max_bytes_per_s: int | None
    ready_in_s: float
    started: bool
    deadline_at_s: float | None
    background: bool = False


class Held(Record, kw_only=True):
    """A request without an answer yet, to be answered at `until_s` at the latest."""

    seq: int
    received_s: float
    until_s: float


class Planned(Struct, frozen=True, gc=False, kw_only=True):
    """The newest plan of a job: what the wire's Plan says, but for what is the same for all jobs."""

    number: int
    interval_s: float
    phase_offset_s: float
    request_after_s: float
    safe_bytes_per_s: int
    safe_after_s: float
    safe_for_s: float
    reason: PlanReason
    price_gpu_s_per_byte: float


class Job(Record, kw_only=True):
    """One job, its newest attempt and what older ones may still use."""

    uid: str
    name: str
    attempt: int
    claim: bytes
    """The nonce that the wire writes as hex digits."""
    num_gpus: int
    registered_s: float
    plan: Planned
    terms: Terms = NO_TERMS
    num_bytes: int | None = None
    mtbf_s: float | None = None
    seq: int = 0
    answered_seq: int = 0
    answered_received_s: float | None = None
    answered_s: float = 0.0
    answer: AnyAnswer | None = None
    """What was said last; None where it said nothing but that the request is noted (`last_answer`)."""
    contact_s: float | None = None
    safe_offers: tuple[SafeOffer, ...] = ()
    """The safe rates that it may believe in; empty = that of `plan`, its newest, which it has confirmed."""
    old_shares: tuple[OldShare, ...] = ()
    lease: Lease | None = None
    stall_s: float | None = None
    """A robust estimate, as `num_bytes`; until there is a sample, what the user believes."""
    step: int = 0
    committed_step: int | None = None
    snapshot_s: float | None = None
    mishaps: Mishaps = NO_MISHAPS
    turn: Turn | None = None
    evidence: Evidence | None = None
    finished: bool = False
    began_step: int | None = None
    """The step from which the newest attempt went on: it has worked once it is past it."""
    history: History | None = None
    """What its attempts have shown; None while there is nothing to keep."""
    waiter: Waiter | None = None
    held: Held | None = None
    wake_s: float = INFINITY
    wants_more_safe: bool = False
    """Its safe rate is less than its share, for want of room in the sum of all."""
    load: Load | None = None
    """What it asks of the storage, worked out by `planning.load_of`; None where its figures have changed since, or
    where nobody has looked at them lately."""
    planned_price: float | None = None
    """The price under which the plan was made; None where it has to be looked at again."""
    row: int = -1
    """Where the market keeps what it asks for."""
    belief: Belief = PRIOR
    """What is believed of the pool's failures: one for all its jobs."""
    silent_bytes_per_s: int = 0
    issued_bytes_per_s: int = 0
    """What the pool's sums of silent jobs and of issued safe rates have in them for this job."""

    @property
    def last_answer(self) -> AnyAnswer:
        """The answer to request `answered_seq`, as it was sent."""
        return self.answer or Noted(seq=self.answered_seq, held_s=0.0, confirm=False)

    @property
    def known(self) -> Evidence:
        """What stands behind its figures, to look at: `estimates` changes it."""
        return self.evidence or NO_EVIDENCE

    def to_bytes(self) -> bytes:
        """The record, without what lives on a connection. Its answer is in it as it goes over the wire."""
        stored = _copy(self)
        stored.waiter = stored.held = stored.load = stored.planned_price = None
        stored.wake_s, stored.row, stored.belief = INFINITY, -1, PRIOR
        stored.silent_bytes_per_s = stored.issued_bytes_per_s = 0
        if self.answer is not None:
            stored.answer = encode(self.answer)
        return _WRITER.encode(stored)

    @classmethod
    def from_bytes(cls, raw: bytes) -> "Job":
        """The record that `to_bytes` wrote. Unknown keys of a newer writer are dropped."""
        if raw.startswith(b"{"):
            return cls(**_values_of_json(raw))
        stored = _READER.decode(raw)
        values = _values_of(stored, {})
        if stored.answer is not None:
            values["answer"] = _ANSWER.validate_json(stored.answer)
        return cls(**values)


def turn_of(job: Job) -> Turn:
    """The turn of the job's newest attempt, begun where there is none."""
    if job.turn is None:
        job.turn = Turn()
    return job.turn


_PASSING = {
    "waiter",
    "held",
    "wake_s",
    "load",
    "planned_price",
    "row",
    "belief",
    "silent_bytes_per_s",
    "issued_bytes_per_s",
}
_STORED = tuple(name for name in Job.__struct_fields__ if name not in _PASSING)
_WRITER = msgspec.msgpack.Encoder()
_copy: Callable[[Job], Any] = methodcaller("__copy__")
"""`copy.copy` without its search for what to call."""
_ANSWER: TypeAdapter[AnyAnswer] = TypeAdapter(AnyAnswer)


_ONCE_BESIDE: Mapping[str, tuple[type, tuple[str, ...]]] = {
    "terms": (Terms, Terms.__struct_fields__),
    "mishaps": (Mishaps, ("num_failed", "num_skipped", "num_ungoverned")),
    "turn": (Turn, Turn.__struct_fields__),
    "evidence": (Evidence, ("num_committed", "write_s", "at_work_s", "lead_s")),
}
"""By part: its kind, and what of it older records have outside of it, beside the fields of the job."""
_BLANK = {kind: kind() for kind, _ in _ONCE_BESIDE.values()}


def _values_of(stored: Any, learned: Mapping[str, Any]) -> dict[str, Any]:
    """What a job is made of; `learned` says more of it. What older records have beside the parts is put into them."""
    values = {name: learned.get(name, getattr(stored, name)) for name in _STORED}
    for part, (kind, names) in _ONCE_BESIDE.items():
        said = {name: learned.get(name, getattr(stored, name)) for name in names}
        found = {name: value for name, value in said.items() if value != getattr(_BLANK[kind], name)}
        if found:
            values[part] = msgspec.structs.replace(values[part] or _BLANK[kind], **found)
    return values


def _values_of_json(raw: bytes) -> dict[str, Any]:
    """Of a record of the first releases, which wrote JSON, and what is learned as a record inside the record."""
    stored = _JSON_READER.decode(raw)
    values = _values_of(stored, stored.learned)
    values["claim"] = bytes.fromhex(stored.claim)
    answer = bytes(stored.answer)
    values["answer"] = _ANSWER.validate_json(answer) if answer else None
    return values


def _stored(answer: tuple[str, Any, Any], *more: tuple[str, Any, Any], **hints: Any) -> Any:
    """What is stored of a job, field for field: `answer` and `hints` say what has another type there, `more` what a job
    has not.
    """
    same = _declared(Job, [name for name in _STORED if name != "answer"], hints)
    beside = [declared for kind, names in _ONCE_BESIDE.values() for declared in _declared(kind, names, {})]
    return msgspec.defstruct("Stored", [*same, *beside, answer, *more], kw_only=True)


def _declared(kind: type, names: Collection[str], hints: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    types = {**get_type_hints(kind), **hints}
    return [
        (known.name, types[known.name], _default_of(known))
        for known in msgspec.structs.fields(kind)
        if known.name in names
    ]


def _default_of(known: msgspec.structs.FieldInfo) -> Any:
    return field() if known.default is msgspec.NODEFAULT else field(default=known.default)


_READER = msgspec.msgpack.Decoder(_stored(("answer", bytes | None, None)))
_JSON_READER = msgspec.json.Decoder(
    _stored(
        ("answer", Raw, Raw()),  # stays text, because msgspec knows no union of dataclasses
        ("learned", dict[str, float | None], field(default_factory=dict)),
        claim=str,
    )
)
