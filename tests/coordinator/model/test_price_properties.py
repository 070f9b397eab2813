"""What holds for every pool: how each interval follows from the storage and from what jobs are."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from rampmeter.core import interval
from rampmeter.core.interval import EXACT_FROM, Load
from rampmeter_coordinator.model.asked import Asked
from rampmeter_coordinator.model.pricing import solve

ROUNDING = 1e-7
Figures = Callable[..., st.SearchStrategy[Load]]


def log_uniform(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(math.log(low), math.log(high)).map(math.exp)


def loads(*, free: bool = False) -> st.SearchStrategy[Load]:
    """Any job that could be; `free`: without bounds of any kind."""
    bounds: dict[str, st.SearchStrategy[float | None]] = {
        "write_s": st.just(0.0) | log_uniform(0.1, 1e4),
        "minimum_s": st.just(0.0) | log_uniform(1.0, 1e5),
        "wish_s": st.none() | log_uniform(1.0, 1e6),
    }
    return st.builds(
        Load,
        num_bytes=log_uniform(1e6, 1e15).map(int),
        num_gpus=st.integers(1, 100_000),
        cost_s=log_uniform(1e-3, 1e4),
        mtbf_s=log_uniform(1e3, 1e8),
        **({} if free else bounds),
    )


NO_PRICE_FITS = Load(
    num_bytes=10**6, num_gpus=78_450, cost_s=1.0, mtbf_s=1030.0, write_s=0.0, minimum_s=8103.0, wish_s=None
)
"""Two days between saves of a megabyte, of a job that fails every 17 minutes: more than the highest price."""

pools = st.lists(loads(), min_size=1, max_size=12)
shares = st.sampled_from([2.0, 1.0, 0.99, 0.7, 0.3, 0.05])
factors = st.sampled_from([1.001, 1.1, 3.0, 100.0])
check = settings(max_examples=150, deadline=None, derandomize=True)


def intervals(pool: list[Load], budget: float) -> list[float]:
    price = solve(Asked.of(pool), budget)
    return [load.interval_s(price) for load in pool]


def own_interval(pool: list[Load], budget: float) -> float:
    return intervals(pool, budget)[0]


def free_demand(pool: list[Load]) -> float:
    return interval.demand(pool, 0.0)


@given(pools, shares, factors)
@example([NO_PRICE_FITS], 0.05, 3.0)
@check
def test_more_storage_lengthens_no_interval(pool: list[Load], share: float, factor: float) -> None:
    """And what all ask fits, whatever bounds and wishes they have, where any price fits it."""
    budget = share * free_demand(pool)
    price = solve(Asked.of(pool), budget)
    assert interval.demand(pool, price) <= budget * (1 + 1e-6) or price == interval.HIGHEST_PRICE
    less, more = intervals(pool, budget), intervals(pool, factor * budget)
    assert all(b <= a * (1 + ROUNDING) for a, b in zip(less, more, strict=True))


@given(pools, shares, factors, st.sampled_from(["cost_s", "num_bytes", "mtbf_s"]))
@check
def test_more_to_pay_to_write_or_to_run_shortens_no_interval(
    pool: list[Load], share: float, factor: float, name: str
) -> None:
    """Non-decreasing in stall, bytes and M, also where the price answers."""
    budget = share * free_demand(pool)
    more = replace(pool[0], **{name: type(getattr(pool[0], name))(getattr(pool[0], name) * factor)})
    assume(getattr(more, name) > getattr(pool[0], name))
    after = own_interval([more, *pool[1:]], budget)
    assert after >= own_interval(pool, budget) * (1 - ROUNDING)


@given(pools, shares, factors, st.floats(0.0, 100.0), st.floats(0.001, 1.0), log_uniform(0.1, 1e4))
@check
def test_a_longer_write_shortens_no_interval(
    pool: list[Load], share: float, factor: float, stall_s: float, eps: float, write_s: float
) -> None:
    """It costs training eps times its length, and it is under the write floor."""
    budget = share * free_demand(pool)

    def written_in(write_s: float) -> Load:
        cost_s = interval.cost(stall_s, write_s, eps, synchronous=False)
        return replace(pool[0], cost_s=cost_s, write_s=write_s)

    before, after = written_in(write_s), written_in(factor * write_s)
    assert own_interval([after, *pool[1:]], budget) >= own_interval([before, *pool[1:]], budget) * (
        1 - ROUNDING
    )


@given(loads(free=True), factors, st.floats(0.001, 1.0), log_uniform(0.1, 1e4), st.sampled_from([0.0, 1e-9]))
@check
def test_a_longer_write_lengthens_the_interval(
    load: Load, factor: float, eps: float, write_s: float, price: float
) -> None:
    """Strictly, on idle storage and at any price; level only where the exact period takes over from Young's."""
    before, after = (
        replace(load, cost_s=interval.cost(1.0, w, eps, synchronous=False), write_s=w)
        for w in (write_s, factor * write_s)
    )
    takes_over = EXACT_FROM * load.mtbf_s < after.cost_s and before.cost_s < 1.2 * EXACT_FROM * load.mtbf_s
    assume(not takes_over)
    assume(after.cost_s < 10.0 * load.mtbf_s)  # the exact period ends at M
    assert after.interval_s(price) > before.interval_s(price)


@given(st.lists(loads(free=True), min_size=1, max_size=12))
@check
def test_intervals_do_not_jump_where_the_price_leaves_zero(pool: list[Load]) -> None:
    """A budget that is a hair too small stretches by hairs, also where the own period is the exact one."""
    per_byte = [load.num_bytes / load.num_gpus / load.own_cost_s for load in pool]
    spread = max(per_byte) / min(per_byte)
    assume(spread < 1e6)
    hair = 1e-9
    enough, scarce = (intervals(pool, free_demand(pool) * share) for share in (1.0 + hair, 1.0 - hair))
    assert enough == [load.own_period_s for load in pool]
    assert scarce == pytest.approx(enough, rel=3.0 * hair * spread + 1e-9)


@given(pools, st.sampled_from([1e3, 1.0, 1e-3, 1e-9]))
@check
def test_every_interval_is_finite_and_inside_its_bounds(pool: list[Load], share: float) -> None:
    """At least the floor, at least the own period, never without end."""
    for load, interval_s in zip(pool, intervals(pool, share * free_demand(pool)), strict=True):
        assert math.isfinite(interval_s)
        assert interval_s >= load.floor_s
        assert interval_s >= load.own_period_s * (1 - ROUNDING)


@given(pools, st.sampled_from([0.0, 1e-12, 1e-9, 1e-6, 1.0]))
@check
def test_doubt_makes_nobody_ask_for_more(pool: list[Load], price: float) -> None:
    """However strange the others are."""
    asked = Asked.of(pool)
    assert (asked.doubting().each(price) <= asked.each(price) * (1 + ROUNDING)).all()


@given(pools, pools, shares)
@check
def test_on_its_word_alone_nobody_counts_for_more(pool: list[Load], new: list[Load], share: float) -> None:
    """The price with newcomers lies between that without them and that with all in full, and still falls with B."""
    believed, everybody = Asked.of(pool), Asked.of([*pool, *new])
    everybody.believed_bytes_per_s[len(pool) :] = 0.0
    budget = share * free_demand(pool)
    price = solve(everybody, budget)
    assert solve(believed, budget) <= price * (1 + ROUNDING)
    assert price <= solve(Asked.of([*pool, *new]), budget) * (1 + ROUNDING)
    assert solve(everybody, 1.5 * budget) <= price * (1 + ROUNDING)
