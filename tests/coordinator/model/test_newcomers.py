"""For how much a job counts on its word alone."""

from dataclasses import replace

import pytest

from rampmeter.core import interval
from rampmeter_coordinator.model import planning
from rampmeter_coordinator.model.market import ASK_ANYHOW_S, Market
from rampmeter_coordinator.sim.population import mixed_fleet
from support.records import job, with_figures
from support.stall import BIG, BYTES, GPUS, POOL, Stall, example, intervals

LATER_S = ASK_ANYHOW_S + 0.01

ABSURD = [
    {"num_bytes": 10**18},
    {"interval_max_s": 1.0},
    {"interval_max_s": 1e-3, "num_bytes": 10**18},
    {"num_gpus": 10**6},
    {"num_gpus": 2**53 - 1},
    {"mtbf_s": 1e-3},
    {"stall_s": 0.0, "mtbf_s": 1e-3, "num_gpus": 10**6, "num_bytes": 10**18, "interval_max_s": 1e-3},
    {"stall_s": 1e10, "write_s": 1e10, "interval_min_s": 1e10},
]


@pytest.mark.parametrize("of_bytes", [0, 1])
def test_two_hundred_equal_newcomers_are_priced_as_what_they_are(of_bytes: int) -> None:
    """Nobody has saved yet, and still T is 3,500 s."""
    jobs = [example(str(number), of_bytes=of_bytes) for number in range(200)]
    stall = Stall(*jobs, config=BIG)
    stall.price(0.0)
    assert intervals(stall, jobs) == pytest.approx([3500.0] * 200, rel=0.005)


@pytest.mark.parametrize("capacity", [10**11, 10**12, 11 * 10**11, 2 * 10**12])
@pytest.mark.parametrize("of_bytes", [0, 1])
@pytest.mark.parametrize("claim", ABSURD, ids=str)
def test_an_absurd_newcomer_moves_nobody(claim: dict[str, float], of_bytes: int, capacity: int) -> None:
    """Whatever it claims: the others' intervals move by less than 5 %, whether they have saved or not."""
    jobs = [example(str(number), of_bytes=of_bytes) for number in range(200)]
    stall = Stall(*jobs, config=replace(BIG, capacity_bytes_per_s=capacity))
    stall.price(0.0)
    before = intervals(stall, jobs)
    stall.come(example("liar", **claim))
    stall.price(LATER_S)
    assert intervals(stall, jobs) == pytest.approx(before, rel=0.05)


@pytest.mark.parametrize("claim", ABSURD, ids=str)
def test_a_job_that_has_saved_is_not_believed_other_claims_at_once(claim: dict[str, float]) -> None:
    """A new attempt says something else of itself: it goes on counting for what it asked before."""
    jobs = [example(str(number), of_bytes=3) for number in range(200)]
    stall = Stall(*jobs, config=BIG)
    stall.price(0.0)
    before = intervals(stall, jobs[1:])
    with_figures(jobs[0], **claim)
    stall.market.registered(jobs[0])
    stall.price(LATER_S)
    assert intervals(stall, jobs[1:]) == pytest.approx(before, rel=0.05)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("load", [0.9, 0.995, 1.0, 1.05, 1.5, 3.0])
def test_an_absurd_newcomer_moves_nobody_in_a_mixed_fleet(load: float, seed: int) -> None:
    """Least of all where the price is about to leave 0: there small jobs feel each hundredth most."""
    jobs = [
        job(
            spec.uid,
            num_gpus=spec.num_gpus,
            num_bytes=spec.num_bytes,
            mtbf_s=spec.mtbf_s,
            stall_s=spec.stall_s,
            of_bytes=1,
        )
        for spec in mixed_fleet(200, seed)
    ]
    demand = interval.demand([planning.load_of(one) for one in jobs], 0.0)
    stall = Stall(*jobs, config=replace(POOL, capacity_bytes_per_s=int(demand / load)))
    stall.price(0.0)
    before = intervals(stall, jobs)
    stall.come(job("liar", num_bytes=10**18, num_gpus=10**6, mtbf_s=1e-3))
    stall.price(LATER_S)
    assert intervals(stall, jobs) == pytest.approx(before, rel=0.05)


def test_a_restart_with_the_same_figures_changes_nothing() -> None:
    """Whoever has saved under them is believed, also a giant, and also after a goodbye."""
    jobs = [example(str(number), of_bytes=3) for number in range(20)]
    giant = example("giant", num_bytes=40 * BYTES, num_gpus=10 * GPUS, of_bytes=3)
    stall = Stall(*jobs, giant, config=BIG)
    price = stall.price(0.0)
    stall.market.registered(giant)
    assert stall.price(LATER_S) == price
    giant.finished = True
    stall.market.left(giant)
    assert stall.price(2.0 * LATER_S) < 0.5 * price
    giant.finished = False
    stall.market.registered(giant)
    assert stall.price(3.0 * LATER_S) == pytest.approx(price, rel=0.01)


@pytest.mark.parametrize(("of_bytes", "is_believed"), [(0, False), (1, True)])
def test_after_a_restart_who_has_taught_nothing_is_a_newcomer(of_bytes: int, is_believed: bool) -> None:
    """Saves that could not be as they were told bear out nothing, however many: the others' intervals stay."""
    jobs = [example(str(number), of_bytes=1) for number in range(200)]
    stall = Stall(*jobs, config=BIG)
    before = stall.price(0.0)
    liar = example("liar", num_bytes=10**18, num_committed=7, of_bytes=of_bytes)
    stall.state.jobs[liar.uid] = liar
    stall.market = Market(stall.state)
    assert (stall.price(0.0) > 1.1 * before) is is_believed


@pytest.mark.parametrize("capacity", [10**9, 10**10, 10**11])
def test_the_figures_of_a_question_are_precise_enough(capacity: int) -> None:
    """Kept in 4 bytes, and still what jobs ask for at the price, by the scalar twin, fits within 1 + 1e-6."""
    specs = mixed_fleet(500, 3)
    jobs = [
        job(
            one.uid,
            num_gpus=one.num_gpus,
            num_bytes=one.num_bytes,
            mtbf_s=one.mtbf_s,
            stall_s=one.stall_s,
            of_bytes=1,
        )
        for one in specs
    ]
    stall = Stall(*jobs, config=replace(BIG, capacity_bytes_per_s=capacity))
    price = stall.price(0.0)
    assert price > 0.0
    budget = stall.state.config.budget_bytes_per_s
    asked = interval.demand([planning.load_of(one) for one in jobs], price)
    assert asked == pytest.approx(budget, rel=1e-6)
    assert asked <= budget * (1.0 + 1e-6)


def test_an_honest_giant_is_priced_in_full_after_its_first_save() -> None:
    """Until then it counts for a hundredth of the budget; after it as the scalar twin has it."""
    jobs = [example(str(number), of_bytes=1) for number in range(200)]
    giant = example("giant", num_bytes=100 * BYTES, num_gpus=20 * GPUS)
    stall = Stall(*jobs, config=BIG)
    before = stall.price(0.0)
    stall.come(giant)
    as_newcomer = stall.price(LATER_S)
    with_figures(giant, of_bytes=1)
    stall.market.committed(giant)
    in_full = stall.price(2.0 * LATER_S)
    loads = [planning.load_of(one) for one in (*jobs, giant)]
    assert in_full == pytest.approx(interval.solve_price(loads, 0.8e11), rel=1e-6)
    assert before < as_newcomer < 1.1 * before < in_full
