"""The requests of a restore, worded from where it stands and from what its cell has counted. Sends nothing."""

from rampmeter.core.lifecycle import Action
from rampmeter.core.messages import Fence, Kind, Outcome, Release, Renew, Request, SlotRequest
from rampmeter.core.reading import Reading
from rampmeter.envelope import Envelope
from rampmeter.throttle import FlowCounters


def word(
    action: Action, envelope: Envelope, reading: Reading, counters: FlowCounters, now_s: float
) -> Request:
    """The request that stands for `action`."""
    if action is Action.ASK_READ:
        return SlotRequest(
            **envelope,
            kind=Kind.READ,
            num_bytes=max(0, reading.num_bytes - counters.done_bytes),
            ready_in_s=0.0,  # training stands still: the first byte is read as soon as that is allowed
            started=counters.done_bytes > 0,
        )
    if action is Action.RENEW_READ:
        assert reading.fence is not None
        return Renew(
            **envelope,
            fence=reading.fence,
            held_bytes_per_s=reading.allowance(now_s)[0] or 0,
            done_bytes=counters.done_bytes,
            throttled_s=counters.throttled_s,
            blocked_s=counters.blocked_s,
            busy_s=counters.busy_s,
            num_bytes=reading.num_bytes,
            kind=Kind.READ,
        )
    assert reading.owed is not None
    return release(envelope, reading.owed, counters, was_read=counters.done_bytes >= reading.num_bytes)


def release(envelope: Envelope, fence: Fence, counters: FlowCounters, *, was_read: bool) -> Release:
    """The lease of a read is given back; `was_read`: after its last byte."""
    return Release(
        **envelope,
        fence=fence,
        outcome=Outcome.COMMITTED if was_read else Outcome.ABORTED,
        done_bytes=counters.done_bytes,
        throttled_s=counters.throttled_s,
        blocked_s=counters.blocked_s,
        busy_s=counters.busy_s,
    )
