"""How a budget is filled: walk the writers in order, give each min(wanted, rest), until nothing is left.

The number of writers falls out of it. Pure functions over `Writer`; the same fill serves those who hold a lease and the
look ahead of `arming`. Never gives a trickle: it would only make everybody's write longer.
"""

import math
from collections.abc import Sequence

from msgspec import Struct

from rampmeter.core.messages import RateReason
from rampmeter_coordinator.model.pool import PoolConfig

START_SHARE = 0.1
"""Nobody starts below this share of what it could use."""

UNKNOWN_SHARE = 0.1
"""A save of unknown size gets at most this share of the budget while others want the room."""


class Writer(Struct, kw_only=True, gc=False):
    """One who writes, or will from `from_s` on. `bytes_left` is infinite where the size is unknown."""

    wanted_bytes_per_s: int
    least_bytes_per_s: int
    tenant: str | None = None
    is_read: bool = False
    bytes_left: float = math.inf
    from_s: float = 0.0


def wanted(max_bytes_per_s: int | None, budget_bytes_per_s: int) -> int:
    """What a writer could use: its own maximal rate, the whole budget if unknown (a maximum of 0 says nothing)."""
    return min(max_bytes_per_s, budget_bytes_per_s) if max_bytes_per_s else budget_bytes_per_s


def least(wanted_bytes_per_s: int) -> int:
    """The least rate that is worth a start."""
    return math.ceil(START_SHARE * wanted_bytes_per_s)


def fill(
    writers: Sequence[Writer], rest_bytes_per_s: int, config: PoolConfig
) -> list[tuple[int, RateReason]]:
    """Rate of each writer and why it is not more. Somebody always gets something while anything is left."""
    shares: list[tuple[int, RateReason]] = []
    by_tenant: dict[str, int] = {}
    somebody, num_writing = False, 0
    for writer in writers:
        rate, reason = min(writer.wanted_bytes_per_s, rest_bytes_per_s), RateReason.NO_ROOM
        if rate == writer.wanted_bytes_per_s:
            reason = RateReason.FULL
        if writer.tenant is not None and config.max_tenant_bytes_per_s is not None:
            left = config.max_tenant_bytes_per_s - by_tenant.get(writer.tenant, 0)
            if left < rate:
                rate, reason = left, RateReason.TENANT_CAP
        if num_writing == config.max_writers and not writer.is_read:
            rate, reason = 0, RateReason.MAX_WRITERS
        elif somebody and rate < writer.least_bytes_per_s:
            rate = 0
        if rate:
            somebody = True
            num_writing += not writer.is_read
            rest_bytes_per_s -= rate
            if writer.tenant is not None:
                by_tenant[writer.tenant] = by_tenant.get(writer.tenant, 0) + rate
            if reason is RateReason.NO_ROOM:
                reason = RateReason.SHARED
        shares.append((rate, reason))
    return shares
