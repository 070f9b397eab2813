"""What a flush has to say of itself at the commit, for whoever flushed: a thread of training or a process beside it."""

from collections.abc import Sequence

from rampmeter.commit import FlushRecord, WrittenFile
from rampmeter.core.messages import Fence
from rampmeter.manifest import KeyNorm, LeaseRecord, Timings
from rampmeter.throttle import FlowCounters


def flush_record(
    *,
    written: Sequence[WrittenFile],
    unchecked: Sequence[str],
    norms: Sequence[KeyNorm],
    fence: Fence | None,
    counters: FlowCounters,
    stage_s: float,
    stall_s: float,
    lead_s: float,
    write_s: float,
) -> FlushRecord:
    """Durations in seconds as in the manifest; `counters` stand still."""
    return FlushRecord(
        written=tuple(written),
        unchecked=tuple(unchecked),
        timings=Timings(
            stage_s=stage_s,
            stall_s=stall_s,
            lead_s=lead_s,
            write_s=write_s,
            throttled_s=counters.throttled_s,
            blocked_s=counters.blocked_s,
            busy_s=counters.busy_s,
        ),
        lease=_lease_record(fence, counters),
        norms=tuple(norms),
    )


def _lease_record(fence: Fence | None, counters: FlowCounters) -> LeaseRecord | None:
    if fence is None:
        return None
    flush_s = counters.throttled_s + counters.blocked_s + counters.busy_s
    mean = int(counters.done_bytes / flush_s) if flush_s > 0 else 0
    return LeaseRecord(fence_epoch=fence.epoch, fence_counter=fence.counter, bytes_per_s=mean)
