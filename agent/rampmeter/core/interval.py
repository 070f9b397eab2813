"""When the next checkpoint of one job is worth it: Young, Daly and exact periods, and the priced form of them.

Pure scalar formulas; the coordinator's `model.pricing` has the same for many jobs at once. Never reads a clock.
Waste of an interval T: C/T + (T/2 + W + R)/M, with C the stall, W the write time at full weight (a failure falls back
one whole interval if the newest snapshot is not durable yet), R the restart time, M the mean time between failures.

A price per byte is more stall: T(price) = sqrt(2 M (C' + price b / n)). C' is the C at which Young's formula gives the
job's own period, so that T(0) is that period also where the exact one is shorter than Young's, T is continuous in the
price, and `bid` is its inverse: the price at which a job would choose exactly the age that it has.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rampmeter.core.messages import PlanReason

PRIOR_GPU_HOURS_PER_FAILURE = 50_000.0
"""What a GPU is believed to run between failures before anything was seen (Llama 3 report: about 50,700)."""

DEFAULT_EPS = 0.02
"""Prior for the slow-down of training steps while a flush runs, as a share of the write time."""

MIN_INTERVAL_S = 1.0
WRITE_FLOOR = 1.25
"""h: an interval is at least this many write times, else writes queue and the run degrades to synchronous."""

EXACT_FROM = 0.01
"""From C/M above this the exact period replaces Young's: it differs by more than 5 % there."""

HIGHEST_PRICE = 1e6
PRICE_PRECISION = 1e-9

_NEWTON_STEPS = 6
"""From Daly's estimate on: enough for all digits of a float."""

_AS_GOOD_AS_M = 40.0
"""From C/M above this the exact period differs from M by less than a float can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waste:
    """Shares of run time that are lost, by cause."""

    write: float
    rework: float
    restart: float

    @property
    def total(self) -> float:
        return self.write + self.rework + self.restart


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one job asks of a storage: all that its interval follows from.

    cost_s      C: what a checkpoint costs training, `cost`
    write_s     W, for the write floor; 0 = unknown
    minimum_s   the shortest interval that is allowed, hard
    wish_s      the longest interval that the user wishes; None = no wish. Gives way where the budget is scarce
    """

    num_bytes: int
    num_gpus: int
    cost_s: float
    mtbf_s: float
    write_s: float = 0.0
    minimum_s: float = 0.0
    wish_s: float | None = None

    @property
    def floor_s(self) -> float:
        """The lower bound of the interval: the write floor, the minimum, and never below a second."""
        return max(WRITE_FLOOR * self.write_s, self.minimum_s, MIN_INTERVAL_S)

    @property
    def own_cost_s(self) -> float:
        """C': the C at which Young's formula gives the own period, or the wish where that is shorter."""
        own_s = effective_cost(self.cost_s, self.mtbf_s)
        return own_s if self.wish_s is None else min(own_s, cost_of_period(self.wish_s, self.mtbf_s))

    @property
    def own_period_s(self) -> float:
        """The interval at price 0: what the job would choose alone."""
        return max(self.floor_s, young(self.own_cost_s, self.mtbf_s))

    def interval_s(self, price: float) -> float:
        """T at a price in GPU-seconds per byte."""
        stall_s = self.own_cost_s + price * self.num_bytes / self.num_gpus
        return max(self.floor_s, young(stall_s, self.mtbf_s))

    def bid(self, age_s: float) -> float:
        """What writing now is worth, in GPU-seconds per byte, with durable state that is `age_s` of work old.

        n (x^2 / (2 M) - C') / b, a Whittle index; never below 0, and 0 where the size is unknown.
        """
        if not self.num_bytes:
            return 0.0
        return max(
            0.0, self.num_gpus * (cost_of_period(age_s, self.mtbf_s) - self.own_cost_s) / self.num_bytes
        )


def young(stall_s: float, mtbf_s: float) -> float:
    """sqrt(2 C M), Young 1974: good while C is small against M."""
    return math.sqrt(2.0 * stall_s * mtbf_s)


def daly(stall_s: float, mtbf_s: float) -> float:
    """Daly's higher-order estimate (2006): work between checkpoints, C excluded; M from C >= 2 M on."""
    if stall_s >= 2.0 * mtbf_s:
        return mtbf_s
    half = stall_s / (2.0 * mtbf_s)
    return young(stall_s, mtbf_s) * (1.0 + math.sqrt(half) / 3.0 + half / 9.0) - stall_s


def exact(stall_s: float, mtbf_s: float) -> float:
    """The optimum for exponential failures: T = M (1 + W0(-exp(-C/M - 1))), work between checkpoints, C excluded.

    W0 is Lambert's function. Solved as ln(u) + 1 - u + C/M = 0 with u = 1 - T/M, by Newton's steps from Daly's
    estimate.
    """
    ratio = stall_s / mtbf_s
    if ratio > _AS_GOOD_AS_M:
        return mtbf_s
    left = max(1.0 - daly(stall_s, mtbf_s) / mtbf_s, math.exp(-ratio - 1.0))
    for _ in range(_NEWTON_STEPS):
        if left < 1.0:  # else C is 0 and so is T
            left -= left * (math.log(left) + 1.0 - left + ratio) / (1.0 - left)
    return mtbf_s * (1.0 - left)


def period(cost_s: float, mtbf_s: float) -> float:
    """The period that a job would choose alone, in seconds: Young's, the exact one from C/M > 0.01 on.

    The exact one begins 5 % below Young's; the period stays level until it has caught up, so that a higher cost never
    shortens it.
    """
    if cost_s > EXACT_FROM * mtbf_s:
        return max(exact(cost_s, mtbf_s), young(EXACT_FROM * mtbf_s, mtbf_s))
    return young(cost_s, mtbf_s)


def cost_of_period(period_s: float, mtbf_s: float) -> float:
    """The C, in seconds, at which Young's formula gives this period."""
    return period_s * period_s / (2.0 * mtbf_s)


def effective_cost(cost_s: float, mtbf_s: float) -> float:
    """C' in seconds (see the module): C itself up to C/M = 0.01, less above."""
    if cost_s <= EXACT_FROM * mtbf_s:
        return cost_s
    return cost_of_period(period(cost_s, mtbf_s), mtbf_s)


def cost(stall_s: float, write_s: float, eps: float, *, synchronous: bool) -> float:
    """C of the formulas: the stall plus what a flush slows down; a synchronous job's stall is its write time."""
    return write_s if synchronous else stall_s + eps * write_s


def solve_price(loads: Sequence[Load], budget_bytes_per_s: float, *, base_price: float = 0.0) -> float:
    """The smallest price >= `base_price` at which what all ask fits: sum b / T(price) <= budget, by bisection.

    GPU-seconds per byte. HIGHEST_PRICE where no price fits, which only an absurdly small budget does.
    """
    low, high = base_price, max(1e-12, 2.0 * base_price)
    if demand(loads, low) <= budget_bytes_per_s:
        return low
    while demand(loads, high) > budget_bytes_per_s:
        low, high = high, high * 4.0
        if high > HIGHEST_PRICE:
            return HIGHEST_PRICE
    while high - low > PRICE_PRECISION * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if demand(loads, middle) > budget_bytes_per_s else (low, middle)
    return high


def demand(loads: Iterable[Load], price: float) -> float:
    """Bytes per second that all ask for on average at a price."""
    return sum(load.num_bytes / load.interval_s(price) for load in loads)


def reason_for(load: Load, price: float) -> PlanReason:
    """What decided the interval at this price."""
    free_s = young(load.own_cost_s + price * load.num_bytes / load.num_gpus, load.mtbf_s)
    if free_s < load.floor_s:
        by_write = load.floor_s == WRITE_FLOOR * load.write_s
        return PlanReason.WRITE_FLOOR if by_write else PlanReason.MINIMUM
    if load.wish_s is not None and free_s > load.wish_s * (1.0 + 1e-9):
        return PlanReason.BUDGET
    return PlanReason.PRICE if price > 0.0 and load.num_bytes else PlanReason.OWN_PERIOD


def waste(interval_s: float, cost_s: float, mtbf_s: float, *, write_s: float, restart_s: float) -> Waste:
    """Expected shares lost at interval T (see the module's formula)."""
    return Waste(
        write=cost_s / interval_s,
        rework=(interval_s / 2.0 + write_s) / mtbf_s,
        restart=restart_s / mtbf_s,
    )


def mtbf(num_gpus: int, num_failures: float = 0.0, gpu_hours: float = 0.0) -> float:
    """Mean time between failures of a job of `num_gpus` GPUs, in seconds: M = (b0 + t) / ((a0 + k) n).

    Posterior mean of the failure rate per GPU-hour after k failures in t GPU-hours, under a Gamma prior with a0 = 1 and
    b0 = PRIOR_GPU_HOURS_PER_FAILURE: the optimum of an objective that is linear in the rate.
    """
    per_failure = (PRIOR_GPU_HOURS_PER_FAILURE + gpu_hours) / (1.0 + num_failures)
    return per_failure * 3600.0 / num_gpus
