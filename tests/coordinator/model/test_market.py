"""When the price is solved again: what is noticed, and what waits for the next look anyhow."""

import pytest

from rampmeter_coordinator.model import planning
from rampmeter_coordinator.model.market import SOLVE_AFTER_S, SOLVE_ANYHOW_S, Market
from rampmeter_coordinator.model.records import Job
from support.records import job

BUDGET = 1000
SOON_S = SOLVE_AFTER_S + 0.1


def scarce() -> tuple[Market, list[Job]]:
    """Ten jobs that ask for more than there is; the price is found at 0 s."""
    jobs = [job(str(number), num_bytes=100_000) for number in range(10)]
    market = Market({one.uid: one for one in jobs})
    market.solve(BUDGET, 0.0)
    assert market.price > 0.0
    return market, jobs


def grow(market: Market, jobs: list[Job], factor: float) -> None:
    """Every job has so much more to write."""
    for one in jobs:
        before = planning.load_of(one)
        one.num_bytes = int((one.num_bytes or 0) * factor)
        market.figures_changed(one, before)


def test_figures_that_have_moved_noticeably_bring_a_new_price_soon() -> None:
    """At the next look, a few seconds later."""
    market, jobs = scarce()
    price = market.price
    grow(market, jobs, 3.0)
    market.solve(BUDGET, SOON_S)
    assert market.price > 2.0 * price


def test_small_changes_wait_for_the_look_that_comes_anyhow() -> None:
    """A few per cent cost no solution; the next one takes them in."""
    market, jobs = scarce()
    price = market.price
    grow(market, jobs, 1.04)
    market.solve(BUDGET, SOON_S)
    assert market.price == price
    market.solve(BUDGET, SOLVE_ANYHOW_S + SOON_S)
    assert market.price > price


def test_a_finished_job_asks_for_nothing() -> None:
    """The price falls once it has said so."""
    market, jobs = scarce()
    for one in jobs[1:]:
        one.finished = True
        market.left()
    market.solve(BUDGET, SOON_S)
    alone = Market({jobs[0].uid: jobs[0]})
    alone.solve(BUDGET, SOON_S)
    assert market.price == pytest.approx(alone.price, rel=1e-6)


def test_a_job_that_comes_is_noticed() -> None:
    """Nothing was known of it before."""
    market, jobs = scarce()
    price, newcomer = market.price, job("new", num_bytes=1_000_000)
    market._jobs = {one.uid: one for one in (*jobs, newcomer)}
    market.figures_changed(newcomer, None)
    market.solve(BUDGET, SOON_S)
    assert market.price > price
    assert newcomer.planned_price is None
