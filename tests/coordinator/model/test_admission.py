"""The fill of a budget: who gets how much, and why not more."""

import pytest
from msgspec.structs import replace

from rampmeter.core.messages import RateReason
from rampmeter_coordinator.model import admission
from rampmeter_coordinator.model.admission import Writer
from rampmeter_coordinator.model.pool import PoolConfig

POOL = PoolConfig(name="pool", capacity_bytes_per_s=1250)
BUDGET = 1000


def writer(most: int | None = None, tenant: str | None = None) -> Writer:
    wanted = admission.wanted(most, BUDGET)
    return Writer(wanted_bytes_per_s=wanted, least_bytes_per_s=admission.least(wanted), tenant=tenant)


def rates(writers: list[Writer], rest: int = BUDGET, config: PoolConfig = POOL) -> list[int]:
    return [rate for rate, _ in admission.fill(writers, rest, config)]


@pytest.mark.parametrize(
    ("maxima", "rest", "expected"),
    [
        ([None], 1000, [1000]),
        ([300, None], 1000, [300, 700]),
        ([600, 600], 1000, [600, 400]),
        ([950, 600], 1000, [950, 0]),  # 50 is below 10 % of 600: a trickle starts nobody
        ([960, 400], 1000, [960, 40]),
        ([None, None], 7, [7, 0]),  # the first gets what there is
        ([None], 0, [0]),
        ([], 1000, []),
        ([0], 1000, [1000]),  # a maximum of 0 says nothing
        ([10**16], 1000, [1000]),
    ],
)
def test_the_budget_is_filled_in_order(maxima: list[int | None], rest: int, expected: list[int]) -> None:
    """Everybody gets min(wanted, rest) in order; nobody but the first is given less than a tenth of its wish."""
    assert rates([writer(most) for most in maxima], rest) == expected


@pytest.mark.parametrize("most", [None, 1, 50, 10**16])
def test_somebody_always_starts_in_an_idle_pool(most: int | None) -> None:
    """Whatever a job says of itself, and however little is left."""
    assert rates([writer(most)], 1) == [1]
    assert rates([writer(most)], 0) == [0]


def test_no_more_than_max_writers_write() -> None:
    """Room or not; whoever got nothing for another reason takes no place."""
    config = PoolConfig(name="pool", capacity_bytes_per_s=1250, max_writers=2)
    assert rates([writer(10), writer(10), writer(10)], config=config) == [10, 10, 0]
    capped = PoolConfig(name="pool", capacity_bytes_per_s=1250, max_writers=2, max_tenant_bytes_per_s=10)
    assert rates([writer(10, "a"), writer(10, "a"), writer(10, "b")], config=capped) == [10, 0, 10]


def test_restores_take_no_writers_place_and_need_none() -> None:
    """Before and behind the one that may write."""
    config = PoolConfig(name="pool", capacity_bytes_per_s=1250, max_writers=1)
    reader = replace(writer(10), is_read=True)
    assert rates([reader, writer(10), reader, writer(10)], config=config) == [10, 10, 10, 0]


def test_a_tenant_gets_no_more_than_its_cap() -> None:
    """All its jobs together; jobs without a tenant have no cap."""
    config = PoolConfig(name="pool", capacity_bytes_per_s=1250, max_tenant_bytes_per_s=300)
    writers = [writer(200, "a"), writer(200, "a"), writer(200, "b"), writer(400)]
    assert rates(writers, config=config) == [200, 100, 200, 400]


def test_every_share_says_why_it_is_not_more() -> None:
    """Full, shared, no room, the tenant's cap, the number of writers."""
    config = PoolConfig(name="pool", capacity_bytes_per_s=1250, max_tenant_bytes_per_s=300, max_writers=4)
    writers = [writer(400), writer(400, "a"), writer(400), writer(500), writer(1)]
    assert [reason for _, reason in admission.fill(writers, BUDGET, config)] == [
        RateReason.FULL,
        RateReason.TENANT_CAP,
        RateReason.SHARED,
        RateReason.NO_ROOM,
        RateReason.NO_ROOM,
    ]
    assert admission.fill([writer(1)] * 5, BUDGET, config)[-1] == (0, RateReason.MAX_WRITERS)
