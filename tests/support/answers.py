"""Answers of a coordinator, made by hand."""

from rampmeter.core.messages import (
    Fence,
    Gone,
    GoneReason,
    Grant,
    LeaseState,
    Noted,
    Plan,
    PlanReason,
    RateReason,
    Wait,
    WaitReason,
)

FENCE = Fence(epoch=7, counter=1)


def plan(**more):
    """A plan: every 100 s, safe rate 5 MB/s from 90 s of silence on, for an hour."""
    fields = {
        "number": 1,
        "interval_s": 100.0,
        "phase_offset_s": 30.0,
        "request_after_s": 100.0,
        "safe_bytes_per_s": 5_000_000,
        "safe_after_s": 90.0,
        "safe_for_s": 3600.0,
        "heartbeat_s": 15.0,
        "reason": PlanReason.OWN_PERIOD,
        "price_gpu_s_per_byte": 0.0,
    }
    return Plan(**(fields | more))


def noted(seq=1, *, confirm=False, **more):
    """The answer to a register, heartbeat, release or finish."""
    return Noted(seq=seq, held_s=0.0, confirm=confirm, **more)


def grant(seq=1, *, rate=0, held_s=0.0, ttl_s=30.0, fence=FENCE, **more):
    """A lease: armed at rate 0, else active."""
    state = LeaseState.ACTIVE if rate else LeaseState.ARMED
    return Grant(
        seq=seq,
        held_s=held_s,
        confirm=False,
        fence=fence,
        state=state,
        bytes_per_s=rate,
        ttl_s=ttl_s,
        reason=RateReason.FULL if rate else RateReason.PREPARE,
        **more,
    )


def wait(seq=1, *, retry_after_s=0.0, reason=WaitReason.QUEUE, **more):
    """Not now."""
    return Wait(seq=seq, held_s=0.0, confirm=False, retry_after_s=retry_after_s, reason=reason, **more)


def gone(seq=1, reason=GoneReason.EXPIRED):
    """The lease is no more."""
    return Gone(seq=seq, held_s=0.0, confirm=False, reason=reason)
