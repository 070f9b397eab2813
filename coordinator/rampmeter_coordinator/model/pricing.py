"""The price of a byte: the smallest at which what all jobs ask fits the budget (design: Interval).

The price is the smallest >= base price with sum b_i / T_i(price) <= u B, found by bisection. The demand falls with the
price, so the answer is unique. Pure: arrays in, numbers out, nothing of a ledger: a question can be answered in another
thread while the pool goes on.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rampmeter.core.interval import HIGHEST_PRICE, PRICE_PRECISION
from rampmeter_coordinator.model.asked import Asked
from rampmeter_coordinator.model.commands import Priced

NEWCOMER_SHARE = 0.01
"""Of the budget: what a job may count with on its word alone, or the median of what all ask where that is more.

Where the price is about to leave 0, two hundredths move the intervals of small jobs in a mixed fleet by up to 6 %.
"""

ABSURD_SHARE = 0.01
"""Of the budget: doubted words that would add more than this are counted as absurd. Fewer bytes move nobody."""

SAME_PRICE = 0.01
"""A price that moves by less moves no interval out of its dead band."""

_SMALLEST_PRICE = 1e-12
_FIRST_STEP, _STEP = 1.1, 4.0
"""How far from the price in force the new one is looked for first, and then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """At which price does this fit, and whose claims are absurd?

    price    the one in force
    rows     where in `uids` the jobs of `asked` stand, one after the other
    known    whose claims were found absurd before
    """

    asked: Asked
    budget_bytes_per_s: int
    base_price: float
    price: float
    rows: npt.NDArray[np.intp]
    uids: tuple[str, ...]
    known: frozenset[str]

    def answer(self) -> Priced | None:
        """The command that brings what is new; None where nothing is."""
        asked = self.asked.at_most(self.budget_bytes_per_s)
        doubted = asked.doubting()
        price = solve(doubted, self.budget_bytes_per_s, base_price=self.base_price, guess=self.price)
        if abs(price - self.price) <= SAME_PRICE * self.price:
            price = self.price
        too_much = asked.each(price) - doubted.each(price)
        absurd = tuple(self._absurd(too_much > ABSURD_SHARE * self.budget_bytes_per_s))
        if price == self.price and not absurd:
            return None
        return Priced(price_gpu_s_per_byte=price, absurd=absurd)

    def _absurd(self, is_too_much: npt.NDArray[np.bool_]) -> Iterator[str]:
        """Whose doubted words would move others, and were not known to."""
        for row in self.rows[is_too_much]:
            if self.uids[row] not in self.known:
                yield self.uids[row]


def solve(asked: Asked, budget_bytes_per_s: float, *, base_price: float = 0.0, guess: float = 0.0) -> float:
    """The smallest price >= `base_price` at which the demand fits, in GPU-seconds per byte; `guess` saves time only.

    HIGHEST_PRICE where no price fits: what the floors alone ask for is too much.
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
