"""The wire: every message between agent and coordinator, as frozen values. docs/protocol.md says it in prose.

Rules that hold for all of them. A job has one request in flight; a newer `seq` supersedes an older held one and voids
its answer. `ack` is the `seq` of the last answer that the agent applied: a lowering counts only when it is confirmed.
`held_s` is how long the coordinator held the request before it decided: the agent's deadline for a lease is the first
send of that `seq` + `held_s` + `ttl_s` - MARGIN_S. Unknown fields are ignored, missing ones refused by name, absent
optional ones mean "unknown". Request enums refuse unknown values; answer enums map them to `unknown`, which every
reader treats as the careful choice.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Self

from rampmeter.core.fields import (
    Attempt,
    Bool,
    Bytes,
    BytesPerS,
    Count,
    MaybeBytes,
    MaybeCount,
    MaybeName,
    MaybePositiveSeconds,
    MaybeRate,
    MaybeSeconds,
    MaybeShare,
    Name,
    PositiveCount,
    PositiveSeconds,
    Price,
    Seconds,
    Uid,
)

PROTOCOL = 1
MARGIN_S = 1.0
"""What an agent stops before the coordinator's own expiry: covers clock drift and a paused scheduler."""


class Kind(StrEnum):
    """What a slot is asked for."""

    WRITE = "write"
    READ = "read"


class Outcome(StrEnum):
    """How a save ended. Only `committed` is a sample to learn from."""

    COMMITTED = "committed"
    FAILED = "failed"
    ABORTED = "aborted"


class EndReason(StrEnum):
    """Why an attempt says goodbye. `cancelled`: by a person, who may start the next one; no failure."""

    FINISHED = "finished"
    FAILED = "failed"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"


class Survives(StrEnum):
    """Which failures a job's checkpoints in this pool are for.

    `site`: only what takes many jobs at once, since another tier is there for the rest.
    """

    NODE = "node"
    SITE = "site"


class _AnswerEnum(StrEnum):
    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        return cls["UNKNOWN"] if isinstance(value, str) else None


class LeaseState(_AnswerEnum):
    """Life of a lease. `ready` is armed with the first byte in hand; paused is active at rate 0."""

    ARMED = "armed"
    ACTIVE = "active"
    RELEASED = "released"
    EXPIRED = "expired"
    REVOKED = "revoked"
    UNKNOWN = "unknown"


class RateReason(_AnswerEnum):
    """Why a lease has the rate that it has."""

    PREPARE = "prepare"
    FULL = "full"
    SHARED = "shared"
    NO_ROOM = "no_room"
    OLD_LEASE = "old_lease"
    SILENT_JOBS = "silent_jobs"
    GRACE = "grace"
    MAX_WRITERS = "max_writers"
    TENANT_CAP = "tenant_cap"
    NO_PROGRESS = "no_progress"
    PAUSED = "paused"
    SHADOW = "shadow"
    UNKNOWN = "unknown"


class WaitReason(_AnswerEnum):
    """Why a slot is not granted yet."""

    QUEUE = "queue"
    OLD_LEASE = "old_lease"
    SILENT_JOBS = "silent_jobs"
    GRACE = "grace"
    CONFIRM = "confirm"
    MAX_WRITERS = "max_writers"
    TENANT_CAP = "tenant_cap"
    SIZE_UNKNOWN = "size_unknown"
    WILL_NOT_FIT = "will_not_fit"
    UNKNOWN = "unknown"


class GoneReason(_AnswerEnum):
    """Why a lease that an agent speaks of is no more. `make_room`: give this save up, blocked GPUs need the storage."""

    EXPIRED = "expired"
    REVOKED = "revoked"
    RELEASED = "released"
    NOT_READY = "not_ready"
    NO_PROGRESS = "no_progress"
    MAKE_ROOM = "make_room"
    UNKNOWN = "unknown"


class PlanReason(_AnswerEnum):
    """What decided the interval."""

    OWN_PERIOD = "own_period"
    PRICE = "price"
    WRITE_FLOOR = "write_floor"
    MINIMUM = "minimum"
    BUDGET = "budget"
    UNKNOWN = "unknown"


class RefusalReason(StrEnum):
    """`reason` of a problem answer (RFC 9457)."""

    BAD_REQUEST = "bad_request"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    TOO_LARGE = "too_large"
    UNSUPPORTED_PROTOCOL = "unsupported_protocol"
    UNKNOWN_POOL = "unknown_pool"
    UNKNOWN_JOB = "unknown_job"
    STALE_ATTEMPT = "stale_attempt"
    FOREIGN_LEASE = "foreign_lease"
    SUPERSEDED = "superseded"
    OLD_SEQ = "old_seq"
    TOO_MANY_JOBS = "too_many_jobs"
    OVERLOADED = "overloaded"
    DRAINING = "draining"
    STORE_UNAVAILABLE = "store_unavailable"
    REPLACED = "replaced"
    NO_LEADER = "no_leader"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Fence:
    """The number that makes stale leases refusable; compared epoch first, then counter."""

    epoch: Count
    counter: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the coordinator tells a job. `number` grows with each change.

    interval_s        T, from snapshot to snapshot: the forecast
    phase_offset_s    where in [0, T) after registration the second save is due
    request_after_s   earliest next request after a snapshot: the job's own period
    safe_bytes_per_s  what the job may use when the coordinator is silent
    safe_after_s      the safe rate is usable this long after the receipt of the last answer ...
    safe_for_s        ... and for this long; after it the job goes on ungoverned
    heartbeat_s       how often to call when nothing else is in flight
    price_gpu_s_per_byte   the plan price in GPU-seconds per byte; 0 = storage is not the bottleneck
    bid_gpu_s_per_byte     what a byte written now was worth to the job when this was said ...
    live_price_gpu_s_per_byte   ... beside the largest bid that waited then: who bids less waits
    """

    number: Count
    interval_s: PositiveSeconds
    phase_offset_s: Seconds
    request_after_s: PositiveSeconds
    safe_bytes_per_s: BytesPerS
    safe_after_s: PositiveSeconds
    safe_for_s: Seconds
    heartbeat_s: PositiveSeconds
    reason: PlanReason
    price_gpu_s_per_byte: Price
    bid_gpu_s_per_byte: Price = 0.0
    live_price_gpu_s_per_byte: Price = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What every request carries. `ack` 0 = no answer applied yet."""

    job_uid: Uid
    attempt: Attempt
    seq: PositiveCount
    ack: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Register(Request):
    """An attempt presents itself. `claim` is the nonce of its claim in the root: equal number and claim = replay.

    num_bytes, stall_s and write_s are cold-start figures (from the state's tensors); mtbf_s and restart_s what the
    user believes; interval_min_s is hard, interval_max_s a wish. seen_epoch is the highest fence epoch that this job
    ever saw; safe_bytes_per_s the safe rate of the last Plan that it still holds. tenant: on whose account, where the
    pool caps tenants. survives: which failures the checkpoints in this pool are for.
    """

    name: Name
    claim: Uid
    num_gpus: PositiveCount
    tenant: MaybeName = None
    num_bytes: MaybeBytes = None
    stall_s: MaybeSeconds = None
    write_s: MaybeSeconds = None
    mtbf_s: MaybePositiveSeconds = None
    restart_s: MaybeSeconds = None
    interval_min_s: MaybePositiveSeconds = None
    interval_max_s: MaybePositiveSeconds = None
    synchronous: Bool = False
    survives: Survives = Survives.NODE
    seen_epoch: Count = 0
    safe_bytes_per_s: BytesPerS = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(Request):
    """A sign of life when nothing else is in flight. Counts are totals of this attempt.

    restored_step   what this attempt began from, once it has restored; rolled_back: an older step was chosen by name
    load_s          how long the restore took; warm_up_s the rest from the start to the first step; both once known
    """

    step: Count
    step_s: MaybeSeconds = None
    committed_step: MaybeCount = None
    commit_age_s: MaybeSeconds = None
    num_skipped: Count = 0
    num_failed: Count = 0
    num_ungoverned: Count = 0
    restored_step: MaybeCount = None
    rolled_back: Bool = False
    load_s: MaybeSeconds = None
    warm_up_s: MaybeSeconds = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRequest(Request):
    """May I checkpoint (or restore) now?

    num_bytes          what this save will write; absent = unknown
    age_s              seconds of work since the newest durable state
    ready_in_s         forecast of the time from grant to first byte; 0 = first byte in hand
    started            a lapsed lease's save goes on: the snapshot exists
    max_bytes_per_s    the most that this job can write by itself; absent = unknown
    work_left_s        work until the job ends; absent = unknown
    """

    kind: Kind
    num_bytes: MaybeBytes = None
    age_s: MaybeSeconds = None
    ready_in_s: MaybeSeconds = None
    max_bytes_per_s: MaybeRate = None
    work_left_s: MaybeSeconds = None
    started: Bool = False
    urgent: Bool = False
    deadline_s: MaybePositiveSeconds = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready(Request):
    """The first byte is in hand; `lead_s` is the time from grant to now."""

    fence: Fence
    lead_s: Seconds
    num_bytes: MaybeBytes = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Renew(Request):
    """The lease goes on. Figures are totals since the first byte of this lease's save.

    held_bytes_per_s   the rate that the agent holds: re-creates the lease after lost memory, of this `kind`
    done_bytes         bytes that left the host
    throttled_s        asleep in our bucket; blocked_s in write/sync/close; busy_s CPU
    """

    fence: Fence
    held_bytes_per_s: BytesPerS
    done_bytes: Bytes
    throttled_s: Seconds
    blocked_s: Seconds
    busy_s: Seconds
    num_bytes: MaybeBytes = None
    kind: Kind = Kind.WRITE


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(Request):
    """The save has ended and with it the lease. write_s: snapshot to durable, of a committed save only.

    eps: what training lost beside the flush, as a share of its time at work (write_s - throttled_s): steps were slower.
    """

    fence: Fence
    outcome: Outcome
    done_bytes: Bytes
    throttled_s: Seconds
    blocked_s: Seconds
    busy_s: Seconds
    step: MaybeCount = None
    stall_s: MaybeSeconds = None
    lead_s: MaybeSeconds = None
    write_s: MaybeSeconds = None
    eps: MaybeShare = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish(Request):
    """The attempt ends and promises to write no more."""

    reason: EndReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What every answer carries. `confirm`: send the next request at once, to confirm this answer."""

    seq: PositiveCount
    held_s: Seconds
    confirm: Bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted(Answer):
    """Register, heartbeat, release and finish are noted. A register's answer always has a plan."""

    answer: Literal["noted"] = "noted"
    plan: Plan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant(Answer):
    """A lease, new or renewed. Armed: rate 0, prepare the snapshot and say ready.

    max_streams bounds the writers inside the job; absent = no bound.
    """

    fence: Fence
    state: LeaseState
    bytes_per_s: BytesPerS
    ttl_s: PositiveSeconds
    reason: RateReason
    answer: Literal["grant"] = "grant"
    start_within_s: MaybeSeconds = None
    max_streams: MaybeCount = None
    plan: Plan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(Answer):
    """Not now: ask again after retry_after_s. A refusal is a value, not an error.

    fits_bytes comes with `will_not_fit`: how much could be written before the deadline, had the job asked for that.
    """

    retry_after_s: Seconds
    reason: WaitReason
    answer: Literal["wait"] = "wait"
    eta_s: MaybeSeconds = None
    fits_bytes: MaybeBytes = None
    plan: Plan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone(Answer):
    """The lease is no more: rate 0 before the next chunk, then ask for a slot with `started`."""

    reason: GoneReason
    answer: Literal["gone"] = "gone"
    plan: Plan | None = None


AnyAnswer = Noted | Grant | Wait | Gone
"""Told apart by `answer`."""
