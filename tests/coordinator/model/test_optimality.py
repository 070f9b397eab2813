"""The priced intervals are the optimum: against a general solver that knows nothing of prices (SciPy's SLSQP).

Fifty jobs of all sizes share storages of five capacities; some are bound by their write time or by a minimum.
"""

import random
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from rampmeter.core.interval import Load, demand, mtbf, solve_price
from rampmeter_coordinator.model.asked import Asked, Floats
from rampmeter_coordinator.model.pricing import solve

NUM_JOBS = 50
CAPACITIES = (2e12, 2e11, 1e11, 5e10, 2e10)
UTILISATION = 0.8


def jobs(seed: int, *, bound: bool) -> list[Load]:
    """8 to 2,048 GPUs, 1 to 10 GB each, 50,000 GPU-hours between failures give or take a factor of 2.

    bound: a third of them has a minimum, a third a slow write.
    """
    rng = random.Random(seed)
    found = []
    for number in range(NUM_JOBS):
        num_gpus = 8 * round(2.0 ** rng.uniform(0.0, 8.0))
        found.append(
            Load(
                num_bytes=int(num_gpus * rng.uniform(1e9, 1e10)),
                num_gpus=num_gpus,
                cost_s=rng.uniform(0.3, 8.0),
                mtbf_s=mtbf(num_gpus) * 2.0 ** rng.uniform(-1.0, 1.0),
                minimum_s=rng.uniform(300.0, 20_000.0) if bound and number % 3 == 0 else 0.0,
                write_s=rng.uniform(15.0, 3000.0) if bound and number % 3 == 1 else 0.0,
            )
        )
    return found


def waste(loads: list[Load], intervals: Floats) -> float:
    """GPUs lost: sum n (C' / T + T / 2 M)."""
    return float(
        sum(
            load.num_gpus * (load.own_cost_s / t + t / (2.0 * load.mtbf_s))
            for load, t in zip(loads, intervals, strict=True)
        )
    )


def by_slsqp(loads: list[Load], budget: float) -> Floats:
    """The same problem on log T, scaled to 1, from a feasible point: everybody stretched alike."""
    num_gpus, mtbf_s, cost_s, num_bytes, floor_s = (
        np.array([getattr(load, name) for load in loads], dtype=float)
        for name in ("num_gpus", "mtbf_s", "own_cost_s", "num_bytes", "floor_s")
    )
    own_s = np.array([load.own_period_s for load in loads])
    scale = waste(loads, own_s)

    def lost(y: Floats) -> tuple[float, Floats]:
        t = np.exp(y)
        write, rework = num_gpus * cost_s / t, num_gpus * t / (2.0 * mtbf_s)
        return float((write + rework).sum()) / scale, (rework - write) / scale

    result = minimize(
        lost,
        np.log(own_s * max(1.0, 1.01 * demand(loads, 0.0) / budget)),
        jac=True,
        method="SLSQP",
        bounds=[(np.log(floor), None) for floor in floor_s],
        constraints={
            "type": "ineq",
            "fun": lambda y: 1.0 - float((num_bytes / np.exp(y)).sum()) / budget,
            "jac": lambda y: num_bytes / np.exp(y) / budget,
        },
        options={"maxiter": 500, "ftol": 1e-14},
    )
    return np.exp(result.x)


@pytest.mark.parametrize("capacity", CAPACITIES)
@pytest.mark.parametrize("bound", [False, True], ids=["free", "bound"])
def test_the_price_finds_the_optimum(capacity: float, bound: bool) -> None:
    """The objective is within 1e-4 of the solver's, and what all ask fits."""
    loads, budget = jobs(1, bound=bound), UTILISATION * capacity
    price = solve(Asked.of(loads), budget)
    ours = np.array([load.interval_s(price) for load in loads])
    theirs = by_slsqp(loads, budget)
    assert sum(load.num_bytes / t for load, t in zip(loads, theirs, strict=True)) <= budget * (1 + 1e-6)
    assert waste(loads, ours) == pytest.approx(waste(loads, theirs), rel=1e-4)
    assert demand(loads, price) <= budget * (1 + 1e-6)
    assert (price > 0.0) == (demand(loads, 0.0) > budget)


def test_the_capacities_are_telling() -> None:
    """From no price at all to one that stretches by a multiple, with bounds that hold some of the jobs."""
    free, bound = jobs(1, bound=False), jobs(1, bound=True)
    prices = [solve(Asked.of(free), UTILISATION * capacity) for capacity in CAPACITIES]
    assert prices == sorted(prices)
    assert prices[0] == 0.0 < prices[-1]
    assert max(load.interval_s(prices[-1]) / load.own_period_s for load in free) > 3.0
    price = solve(Asked.of(bound), UTILISATION * CAPACITIES[-1])
    num_bound = sum(load.interval_s(price) == load.floor_s > 1.0 for load in bound)
    assert 2 < num_bound < NUM_JOBS / 2


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_wishes_never_break_the_budget(capacity: float) -> None:
    """What users would like at most is had where storage is cheap and gives way where it is not."""
    rng = random.Random(2)
    loads = [
        replace(load, wish_s=rng.uniform(60.0, 3000.0)) if number % 2 else load
        for number, load in enumerate(jobs(1, bound=True))
    ]
    budget = UTILISATION * capacity
    price = solve(Asked.of(loads), budget)
    assert demand(loads, price) <= budget * (1 + 1e-6)
    assert solve_price(loads, budget) == pytest.approx(price, rel=1e-6)


@pytest.mark.parametrize("base_price", [0.0, 1e-10, 1e-7])
@pytest.mark.parametrize("seed", range(8))
def test_the_columns_say_what_the_scalar_formulas_say(seed: int, base_price: float) -> None:
    """Floors, wishes, and periods from which Young's formula is far."""
    rng = random.Random(seed)
    loads = [
        replace(
            load,
            cost_s=load.cost_s * 10.0 ** rng.uniform(0.0, 5.0),
            wish_s=rng.choice([None, rng.uniform(60.0, 1e5)]),
            num_bytes=rng.choice([0, load.num_bytes]) if rng.random() < 0.1 else load.num_bytes,
        )
        for load in jobs(seed, bound=True)
    ]
    assert any(load.cost_s > 0.01 * load.mtbf_s for load in loads)
    asked = Asked.of(loads)
    for share in (1.5, 0.9, 0.3, 0.01):
        budget = share * demand(loads, 0.0)
        scalar = solve_price(loads, budget, base_price=base_price)
        for guess in (0.0, scalar, 0.3 * scalar, 30.0 * scalar):
            price = solve(asked, budget, base_price=base_price, guess=guess)
            assert price == pytest.approx(scalar, rel=1e-6)
            assert asked.demand(price) == pytest.approx(demand(loads, price), rel=1e-12)
