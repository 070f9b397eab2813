"""When the next checkpoint of one job is worth it: Young, Daly and exact periods, and the priced form of them.

Pure scalar formulas; the coordinator's `model.pricing` solves for the price that fits a pool. Never reads a clock.
Waste of an interval T: C/T + (T/2 + W + R)/M, with C the stall, W the write time at full weight (a failure falls back
one whole interval if the newest snapshot is not durable yet), R the restart time, M the mean time between failures.
"""

import math
from dataclasses import dataclass

PRIOR_GPU_HOURS_PER_FAILURE = 50_000.0
"""What a GPU is believed to run between failures before anything was seen (Llama 3 report: about 50,700)."""

DEFAULT_EPS = 0.02
"""Prior for the slow-down of training steps while a flush runs, as a share of the write time."""

MIN_INTERVAL_S = 1.0
WRITE_FLOOR = 1.25
"""h: an interval is at least this many write times, else writes queue and the run degrades to synchronous."""

EXACT_FROM = 0.01
"""From C/M above this the exact period replaces Young's: it differs by more than 5 % there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waste:
    """Shares of run time that are lost, by cause."""

    write: float
    rework: float
    restart: float

    @property
    def total(self) -> float:
        return self.write + self.rework + self.restart


def young(stall_s: float, mtbf_s: float) -> float:
    """sqrt(2 C M), Young 1974: good while C is small against M."""
    return math.sqrt(2.0 * stall_s * mtbf_s)


def daly(stall_s: float, mtbf_s: float) -> float:
    """Daly's higher-order estimate (2006): work between checkpoints, C excluded; M from C >= 2 M on."""
    if stall_s >= 2.0 * mtbf_s:
        return mtbf_s
    half = stall_s / (2.0 * mtbf_s)
    return young(stall_s, mtbf_s) * (1.0 + math.sqrt(half) / 3.0 + half / 9.0) - stall_s


def period(cost_s: float, mtbf_s: float) -> float:
    """The period that a job would choose alone, in seconds: Young's, Daly's from C/M > 0.01 on.

    Daly's begins 5 % below Young's; the period stays level until Daly's has caught up, so that a higher cost or price
    never shortens it.
    """
    if cost_s > EXACT_FROM * mtbf_s:
        return max(daly(cost_s, mtbf_s), young(EXACT_FROM * mtbf_s, mtbf_s))
    return young(cost_s, mtbf_s)


def cost_of_period(period_s: float, mtbf_s: float) -> float:
    """The C, in seconds, at which Young's formula gives this period."""
    return period_s * period_s / (2.0 * mtbf_s)


def cost(stall_s: float, write_s: float, eps: float, *, synchronous: bool) -> float:
    """C of the formulas: the stall plus what a flush slows down; a synchronous job's stall is its write time."""
    return write_s if synchronous else stall_s + eps * write_s


def priced_period(cost_s: float, mtbf_s: float, price: float, num_bytes: int, num_gpus: int) -> float:
    """The period at a storage price in GPU-seconds per byte: the bytes count as additional stall, price * b / n."""
    return period(cost_s + price * num_bytes / num_gpus, mtbf_s)


def bid(age_s: float, cost_s: float, mtbf_s: float, num_bytes: int, num_gpus: int) -> float:
    """What writing now is worth, in GPU-seconds per byte, to a job whose durable state is `age_s` of work old.

    n (x^2 / (2 M) - C) / b: the price at which this job would choose exactly this age (a Whittle index); never
    below 0.
    """
    return max(0.0, num_gpus * (age_s * age_s / (2.0 * mtbf_s) - cost_s) / num_bytes)


def waste(interval_s: float, cost_s: float, mtbf_s: float, *, write_s: float, restart_s: float) -> Waste:
    """Expected shares lost at interval T (see the module's formula)."""
    return Waste(
        write=cost_s / interval_s,
        rework=(interval_s / 2.0 + write_s) / mtbf_s,
        restart=restart_s / mtbf_s,
    )


def prior_mtbf(num_gpus: int) -> float:
    """Mean time between failures of a job of `num_gpus` GPUs, in seconds, before anything was seen."""
    return PRIOR_GPU_HOURS_PER_FAILURE * 3600.0 / num_gpus
