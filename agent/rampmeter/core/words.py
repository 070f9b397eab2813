"""The words of the wire: each closed list of values that a message may hold, and what it is about.

What a reader does with a word that it does not know is a rule of `core.messages`.
"""

from enum import StrEnum
from typing import Self


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


class FailReason(_AnswerEnum):
    """Why a save did not become a checkpoint: in reports and logs, on the wire, and as a label of metrics.

    Bounded, and a word that a coordinator does not know yet counts as `unknown`: a label must not cost an agent its
    request. Errors of the storage are named like their errno. `none`: no save has failed.
    """

    NONE = "none"
    ENOSPC = "enospc"
    EDQUOT = "edquot"
    EFBIG = "efbig"
    EIO = "eio"
    EROFS = "erofs"
    EACCES = "eacces"
    EPERM = "eperm"
    ENOENT = "enoent"
    ESTALE = "estale"
    ENOTCONN = "enotconn"
    ETIMEDOUT = "etimedout"
    ENOMEM = "enomem"
    EMFILE = "emfile"
    SIZE_MISMATCH = "size_mismatch"
    NOT_FINITE = "not_finite"
    NORM_JUMP = "norm_jump"
    BAD_STATE = "bad_state"
    IN_FLIGHT = "in_flight"
    LEASE_LOST = "lease_lost"
    REVOKED = "revoked"
    NO_PROGRESS = "no_progress"
    SUPERSEDED = "superseded"
    RANK_FAILED = "rank_failed"
    WRITER_LOST = "writer_lost"
    CLOSING = "closing"
    WILL_NOT_FIT = "will_not_fit"
    TOO_LATE = "too_late"
    DAMAGED = "damaged"
    MAKE_ROOM = "make_room"
    UNKNOWN = "unknown"


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
