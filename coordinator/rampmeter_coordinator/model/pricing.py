"""The price of a byte: the smallest at which what all jobs ask fits the budget (design: Interval).

T_i(price) = max(h W_i, period(C_i + price b_i / n_i, M_i)); the price is the smallest >= 0 with sum b_i / T_i <= u B,
found by bisection. The demand falls with the price, so the answer is unique. Vectorised twin of
`rampmeter.core.interval`; a test keeps them equal. Pure: arrays in, numbers out.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rampmeter.core.interval import EXACT_FROM, MIN_INTERVAL_S, WRITE_FLOOR

HIGHEST_PRICE = 1e6
PRECISION = 1e-9

Floats = npt.NDArray[np.float64]


class Demand(Struct, frozen=True, gc=False, kw_only=True):
    """What pricing needs of one job; `minimum_s` is the user's, and hard. Made anew for all jobs at each solution."""

    num_bytes: int
    num_gpus: int
    cost_s: float
    write_s: float
    mtbf_s: float
    minimum_s: float | None

    @property
    def floor_s(self) -> float:
        """The lower bound of the interval: the write floor, the user's minimum, and never below a second."""
        return max(WRITE_FLOOR * self.write_s, self.minimum_s or 0.0, MIN_INTERVAL_S)


def solve(demands: Sequence[Demand], budget_bytes_per_s: float) -> float:
    """The smallest price at which the demand fits, in GPU-seconds per byte; 0 while storage is no bottleneck.

    HIGHEST_PRICE where no price fits: an interval never passes the job's M.
    """
    columns = _Columns(demands)
    if columns.demand(0.0) <= budget_bytes_per_s:
        return 0.0
    low, high = 0.0, 1e-12
    while columns.demand(high) > budget_bytes_per_s:
        low, high = high, high * 4.0
        if high > HIGHEST_PRICE:
            return HIGHEST_PRICE
    while high - low > PRECISION * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if columns.demand(middle) > budget_bytes_per_s else (low, middle)
    return high


class _Columns:
    def __init__(self, demands: Sequence[Demand]) -> None:
        def column(values: Sequence[float]) -> Floats:
            return np.array(values, dtype=np.float64)

        self._num_bytes = column([d.num_bytes for d in demands])
        self._num_gpus = column([d.num_gpus for d in demands])
        self._cost_s = column([d.cost_s for d in demands])
        self._mtbf_s = column([d.mtbf_s for d in demands])
        self._floor_s = column([d.floor_s for d in demands])

    def demand(self, price: float) -> float:
        cost = self._cost_s + price * self._num_bytes / self._num_gpus
        return float(np.sum(self._num_bytes / np.maximum(self._floor_s, _period(cost, self._mtbf_s))))


def _period(cost_s: Floats, mtbf_s: Floats) -> Floats:
    young = np.sqrt(2.0 * cost_s * mtbf_s)
    half = cost_s / (2.0 * mtbf_s)
    daly = np.where(half >= 1.0, mtbf_s, young * (1.0 + np.sqrt(half) / 3.0 + half / 9.0) - cost_s)
    level = np.sqrt(2.0 * EXACT_FROM) * mtbf_s
    return np.where(cost_s > EXACT_FROM * mtbf_s, np.maximum(daly, level), young)
