"""What a coordinator says: a plan, a lease, wait, or gone; each answer says to which request, and why.

Told apart by `answer`. Nothing here says what an agent does about it.
"""

from dataclasses import dataclass
from typing import Literal

from rampmeter.core.fields import (
    Bool,
    BytesPerS,
    Count,
    MaybeBytes,
    MaybeCount,
    MaybeSeconds,
    PositiveCount,
    PositiveSeconds,
    Price,
    Seconds,
)
from rampmeter.core.words import GoneReason, LeaseState, PlanReason, RateReason, WaitReason


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
