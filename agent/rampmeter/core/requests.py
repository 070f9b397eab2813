"""What an agent says: every request, with what was measured; each carries who speaks and what was heard last.

Totals are totals, so that one that is lost costs nothing. Figures are as the agent has them: what to believe is decided
by the coordinator.
"""

from dataclasses import dataclass

from rampmeter.core.answers import Fence
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
    Seconds,
    Uid,
)
from rampmeter.core.words import EndReason, FailReason, Kind, Outcome, Survives


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
    user believes; interval_min_s is hard, interval_max_s a wish. seen_epoch is the highest fence epoch that the agent
    has seen: fences are above it from now on. safe_bytes_per_s: the safe rate of the last Plan that it still holds.
    tenant: on whose account, where the pool caps tenants. survives: which failures the checkpoints are for.
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

    last_failure    why the newest of the `num_failed` saves failed
    restored_step   what this attempt began from, once it has restored; rolled_back: an older step was chosen by name
    load_s          how long the restore took; warm_up_s the rest from the start to the first step; both once known
    """

    step: Count
    step_s: MaybeSeconds = None
    committed_step: MaybeCount = None
    commit_age_s: MaybeSeconds = None
    num_skipped: Count = 0
    num_failed: Count = 0
    last_failure: FailReason = FailReason.NONE
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
    background         of a read: nobody waits for it, so that it comes after all others and gives way to them
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
    background: Bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready(Request):
    """The first byte is in hand; `lead_s` is the time from grant to now."""

    fence: Fence
    lead_s: Seconds
    num_bytes: MaybeBytes = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Renew(Request):
    """The lease goes on. Figures are totals since the first byte of this lease's save.

    held_bytes_per_s   the rate that the agent holds: re-creates the lease after lost memory, of this `kind` and,
                       where that is a read, in the `background` or not
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
    background: Bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(Request):
    """The save has ended and with it the lease. write_s: snapshot to durable, of a committed save only.

    num_failed, last_failure: as in a heartbeat, so that a failure is known at once; 0 = not told.
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
    num_failed: Count = 0
    last_failure: FailReason = FailReason.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish(Request):
    """The attempt ends and promises to write no more."""

    reason: EndReason
