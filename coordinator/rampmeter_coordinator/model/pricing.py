"""The price of a byte: the smallest at which what all jobs ask fits the budget (design: Interval).

T_i(price) = max(floor_i, sqrt(2 M_i (C'_i + price b_i / n_i))); the price is the smallest >= base price with
sum b_i / T_i <= u B, found by bisection. The demand falls with the price, so the answer is unique. Vectorised twin of
`rampmeter.core.interval`; a test keeps them equal. Pure: arrays in, numbers out, nothing of a ledger: a question can be
answered in another thread while the pool goes on.

A job of which only its own words are known counts with no more than others ask: one absurd claim must not move
everybody's interval. It does so until its first committed save.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rampmeter.core.interval import HIGHEST_PRICE, PRICE_PRECISION, Load
from rampmeter_coordinator.model.commands import Priced

Floats = npt.NDArray[np.float64]

Figures = tuple[float, float, float, float, float]
NUM_FIGURES = 5
"""Of a load: the fields of `Asked` in their order, but for the last one."""

NEWCOMER_SHARE = 0.01
"""Of the budget: what a job may count with on its word alone, or the median of what all ask where that is more.

Where the price is about to leave 0, two hundredths move the intervals of small jobs in a mixed fleet by up to 6 %.
"""

SAME_PRICE = 0.01
"""A price that moves by less moves no interval out of its dead band."""

_SMALLEST_PRICE = 1e-12
_FIRST_STEP, _STEP = 1.1, 4.0
"""How far from the price in force the new one is looked for first, and then."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What jobs ask of a storage, one column a figure, one row a job that asks for anything.

    bytes_per_gpu           b / n
    twice_mtbf_s            2 M
    own_cost_s, floor_s     as in Load
    believed_bytes_per_s    what the job may count with at least, however little the others ask: infinity once it has
                            committed a save under these figures
    """

    num_bytes: Floats
    bytes_per_gpu: Floats
    twice_mtbf_s: Floats
    own_cost_s: Floats
    floor_s: Floats
    believed_bytes_per_s: Floats

    @classmethod
    def of(cls, loads: Iterable[Load]) -> "Asked":
        """Jobs that are all believed."""
        rows = [(*figures(load), math.inf) for load in loads if load.num_bytes]
        return cls(*np.array(rows, dtype=np.float64).reshape(-1, NUM_FIGURES + 1).T)

    def demand(self, price: float, newcomer_bytes_per_s: float = 0.0) -> float:
        """Bytes per second that count at a price; of a job on its word alone at most the lower median of all, or
        `newcomer_bytes_per_s` where that is more.
        """
        cost_s = self.own_cost_s + price * self.bytes_per_gpu
        each = self.num_bytes / np.maximum(self.floor_s, np.sqrt(self.twice_mtbf_s * cost_s))
        if np.isinf(self.believed_bytes_per_s).all():
            return float(each.sum())
        middle = (each.size - 1) // 2
        usual = max(newcomer_bytes_per_s, float(np.partition(each, middle)[middle]))
        return float(np.minimum(each, np.maximum(self.believed_bytes_per_s, usual)).sum())


def figures(load: Load) -> Figures:
    """What the price needs to know of a load."""
    return (
        float(load.num_bytes),
        load.num_bytes / load.num_gpus,
        2.0 * load.mtbf_s,
        load.own_cost_s,
        load.floor_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """At which price does this fit? `price` is the one in force."""

    asked: Asked
    budget_bytes_per_s: int
    base_price: float
    price: float

    def answer(self) -> Priced | None:
        """The command that brings the new price; None where the one in force will do."""
        price = solve(self.asked, self.budget_bytes_per_s, base_price=self.base_price, guess=self.price)
        if abs(price - self.price) <= SAME_PRICE * self.price:
            return None
        return Priced(price_gpu_s_per_byte=price)


def solve(asked: Asked, budget_bytes_per_s: float, *, base_price: float = 0.0, guess: float = 0.0) -> float:
    """The smallest price >= `base_price` at which the demand fits, in GPU-seconds per byte; `guess` saves time only.

    HIGHEST_PRICE where no price fits, which only an absurdly small budget does.
    """

    def fits(price: float) -> bool:
        return asked.demand(price, NEWCOMER_SHARE * budget_bytes_per_s) <= budget_bytes_per_s

    if fits(base_price):
        return base_price
    low, high, step = base_price, max(guess, _SMALLEST_PRICE, base_price * _FIRST_STEP), _FIRST_STEP
    if fits(high):
        while (lower := high / step) > base_price and fits(lower):
            high, step = lower, _STEP
        low = max(lower, base_price)
    else:
        while not fits(high):
            low, high, step = high, high * step, _STEP
            if high > HIGHEST_PRICE:
                return HIGHEST_PRICE
    while high - low > PRICE_PRECISION * high:
        middle = (low + high) / 2.0
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
