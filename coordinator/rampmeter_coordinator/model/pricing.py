"""The price of a byte: the smallest at which what all jobs ask fits the budget (design: Interval).

T_i(price) = max(floor_i, sqrt(2 M_i (C'_i + price b_i / n_i))); the price is the smallest >= 0 with
sum b_i / T_i <= u B, found by bisection. The demand falls with the price, so the answer is unique. Vectorised twin of
`rampmeter.core.interval`; a test keeps them equal. Pure: arrays in, numbers out.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rampmeter.core.interval import HIGHEST_PRICE, PRICE_PRECISION, Load

Floats = npt.NDArray[np.float64]


def solve(loads: Sequence[Load], budget_bytes_per_s: float) -> float:
    """The smallest price at which the demand fits, in GPU-seconds per byte; 0 while storage is no bottleneck.

    HIGHEST_PRICE where no price fits: an interval never passes the job's M.
    """
    columns = _Columns(loads)
    if columns.demand(0.0) <= budget_bytes_per_s:
        return 0.0
    low, high = 0.0, 1e-12
    while columns.demand(high) > budget_bytes_per_s:
        low, high = high, high * 4.0
        if high > HIGHEST_PRICE:
            return HIGHEST_PRICE
    while high - low > PRICE_PRECISION * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if columns.demand(middle) > budget_bytes_per_s else (low, middle)
    return high


class _Columns:
    def __init__(self, loads: Sequence[Load]) -> None:
        def column(values: Sequence[float]) -> Floats:
            return np.array(values, dtype=np.float64)

        self._num_bytes = column([d.num_bytes for d in loads])
        self._num_gpus = column([d.num_gpus for d in loads])
        self._own_cost_s = column([d.own_cost_s for d in loads])
        self._mtbf_s = column([d.mtbf_s for d in loads])
        self._floor_s = column([d.floor_s for d in loads])

    def demand(self, price: float) -> float:
        cost_s = self._own_cost_s + price * self._num_bytes / self._num_gpus
        return float(
            np.sum(self._num_bytes / np.maximum(self._floor_s, np.sqrt(2.0 * cost_s * self._mtbf_s)))
        )
