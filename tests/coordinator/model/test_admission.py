"""The order of waiters and the fill of the budget."""

import pytest

from rampmeter.core.messages import Fence, Kind, LeaseState, RateReason, WaitReason
from rampmeter_coordinator.model import admission
from rampmeter_coordinator.model.planning import blank_plan
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.model.records import Job, Lease, Waiter

POOL = PoolConfig(name="pool", capacity_bytes_per_s=1250)


def lease(max_bytes_per_s: int | None = None) -> Lease:
    return Lease(
        fence=Fence(epoch=1, counter=1),
        kind=Kind.WRITE,
        state=LeaseState.ACTIVE,
        granted_s=0.0,
        offers=[],
        reason=RateReason.FULL,
        ready=True,
        max_bytes_per_s=max_bytes_per_s,
    )


def waiter(
    since_s: float = 0.0, *, started: bool = False, urgent: bool = False, most: int | None = None
) -> Waiter:
    return Waiter(
        since_s=since_s,
        kind=Kind.WRITE,
        reason=WaitReason.QUEUE,
        num_bytes=None,
        max_bytes_per_s=most,
        ready_in_s=1.0,
        started=started,
        urgent=urgent,
    )


def job(uid: str, waits: Waiter | None) -> Job:
    return Job(
        uid=uid,
        name=uid,
        attempt=1,
        claim="0" * 32,
        num_gpus=1,
        registered_s=0.0,
        plan=blank_plan(POOL),
        waiter=waits,
    )


def test_urgent_then_started_then_first_come() -> None:
    """The order of waiters; equal times are settled by the uid, so that every replica agrees."""
    jobs = [
        job("late", waiter(9.0)),
        job("b", waiter(5.0)),
        job("a", waiter(5.0)),
        job("started", waiter(20.0, started=True)),
        job("urgent", waiter(30.0, urgent=True)),
        job("idle", None),
    ]
    assert [found.uid for found in admission.in_order(jobs)] == ["urgent", "started", "a", "b", "late"]


@pytest.mark.parametrize(
    ("maxima", "rest", "rates"),
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
    ],
)
def test_the_budget_is_filled_in_start_order(maxima: list[int | None], rest: int, rates: list[int]) -> None:
    """Everybody gets min(wanted, rest) in order; nobody but the first is given less than a tenth of its wish."""
    assert admission.fill([lease(most) for most in maxima], rest, POOL) == rates


@pytest.mark.parametrize("most", [None, 1, 50, 10**16])
def test_somebody_always_starts_in_an_idle_pool(most: int | None) -> None:
    """Whatever a job says of itself, and however little is left."""
    assert admission.room_to_start([], 1, waiter(most=most), POOL)
    assert not admission.room_to_start([], 0, waiter(most=most), POOL)


def test_nobody_starts_below_a_tenth() -> None:
    """One more starts where a tenth of its wish is left after everybody has what it wants."""
    live = [lease(950)]
    assert admission.room_to_start(live, 1000, waiter(most=500), POOL)
    assert not admission.room_to_start(live, 1000, waiter(most=501), POOL)
    assert not admission.room_to_start(live, 1000, waiter(), POOL)


def test_max_writers_bounds_the_number_of_leases() -> None:
    """Room or not, no more than that many write."""
    config = PoolConfig(name="pool", capacity_bytes_per_s=1250, max_writers=2)
    assert admission.room_to_start([lease(10)], 1000, waiter(most=10), config)
    assert not admission.room_to_start([lease(10), lease(10)], 1000, waiter(most=10), config)
