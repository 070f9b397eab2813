"""What a writer did between two of its reports, from the totals that it sends. Keeps the totals in the lease's record.

The agent counts from the first byte of its save: the first report of a save that goes on under a new lease has no
beginning here, and says nothing.
"""

from rampmeter.core.messages import Release, Renew
from rampmeter_coordinator.model.capacity import Report
from rampmeter_coordinator.model.records import Lease


def rate_since_last(lease: Lease) -> int:
    """The rate in force since the report before.

    An answer is followed by the next request at once: what it allows counts for the time after that request.
    """
    return _rate_now(lease) if lease.reported_rate is None else lease.reported_rate


def since_last(lease: Lease, request: Renew | Release, now_s: float) -> Report | None:
    """The difference to the report before, noted in the lease; None where there is nothing to compare with."""
    rate = _rate_now(lease)
    report = Report(
        bytes_per_s=rate_since_last(lease),
        num_bytes=max(0, request.done_bytes - lease.done_bytes),
        throttled_s=max(0.0, request.throttled_s - lease.throttled_s),
        blocked_s=max(0.0, request.blocked_s - lease.blocked_s),
        busy_s=max(0.0, request.busy_s - lease.busy_s),
    )
    if lease.reported_s is not None and now_s > lease.reported_s:
        lease.achieved_bytes_per_s = int(report.num_bytes / (now_s - lease.reported_s))
    has_beginning, lease.goes_on = not lease.goes_on, False
    lease.done_bytes, lease.reported_s, lease.reported_rate = request.done_bytes, now_s, rate
    lease.throttled_s, lease.blocked_s, lease.busy_s = request.throttled_s, request.blocked_s, request.busy_s
    return report if has_beginning else None


def _rate_now(lease: Lease) -> int:
    return lease.offers[0].bytes_per_s if lease.offers else 0
