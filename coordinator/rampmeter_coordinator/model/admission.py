"""Who may start, who writes how fast: the order of waiters and the fill of the budget.

Pure functions over records. The order here is urgent, started, then first come; bids take its place behind the same
function. The number of writers falls out of the fill: walk the list, give min(wanted, rest) until the budget is full.
"""

import math
from collections.abc import Iterable, Sequence

from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.model.records import Job, Lease, Waiter

START_SHARE = 0.1
"""Nobody starts below this share of what it could use: a trickle would only make its write longer."""

ALWAYS_HELD = 8
"""At least this many waiters are held on an open connection, so that there is always somebody to grant to."""


def in_order(jobs: Iterable[Job]) -> list[Job]:
    """Waiting jobs, the one to be served next first."""
    return sorted((job for job in jobs if job.waiter), key=lambda job: _rank(job, job.waiter))


def _rank(job: Job, waiter: Waiter | None) -> tuple[bool, bool, float, str]:
    assert waiter is not None
    return (not waiter.urgent, not waiter.started, waiter.since_s, job.uid)


def wanted(max_bytes_per_s: int | None, config: PoolConfig) -> int:
    """What a writer could use: its own maximal rate, the whole budget if unknown (a maximum of 0 says nothing)."""
    budget = config.budget_bytes_per_s
    return min(max_bytes_per_s, budget) if max_bytes_per_s else budget


def start_threshold(max_bytes_per_s: int | None, config: PoolConfig) -> int:
    """The least rate that is worth a start."""
    return math.ceil(START_SHARE * wanted(max_bytes_per_s, config))


def fill(leases: Sequence[Lease], rest_bytes_per_s: int, config: PoolConfig) -> list[int]:
    """Target rates of ready leases in start order. Somebody always gets something while anything is left."""
    targets: list[int] = []
    for lease in leases:
        rate = min(wanted(lease.max_bytes_per_s, config), rest_bytes_per_s)
        if any(targets) and rate < start_threshold(lease.max_bytes_per_s, config):
            rate = 0
        targets.append(rate)
        rest_bytes_per_s -= rate
    return targets


def room_to_start(live: Sequence[Lease], rest_bytes_per_s: int, waiter: Waiter, config: PoolConfig) -> bool:
    """Is there bandwidth for one more, once everybody who holds a lease has what it wants?"""
    if not live:
        return rest_bytes_per_s > 0
    if config.max_writers is not None and len(live) >= config.max_writers:
        return False
    left = rest_bytes_per_s - sum(wanted(lease.max_bytes_per_s, config) for lease in live)
    return left >= start_threshold(waiter.max_bytes_per_s, config)
