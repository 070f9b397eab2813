"""Hours and money of a run: how long it takes, on average and with bad luck, and what each cause of loss costs.

A run is given by its useful hours, or by the hours for which it is booked. Failures are a Poisson process of rate 1/M;
each takes T/2 + W + R on average.
"""

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

from rampmeter.planner.answer import Answer
from rampmeter.planner.job import Job

BAD_LUCK = 0.95
_MANY = 10_000.0
"""From this many failures on a normal distribution serves: within a failure or two of the Poisson quantile."""

HOURS_PER_MONTH = 730.0
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What the run is worth and what things cost. None = not given; an amount that is not given is 0.

    hours are useful ones, or booked ones if `booked`. manual_cost: of a person's work per failed recovery.
    """

    hours: float | None
    booked: bool
    price_per_gpu_hour: float | None
    manual_cost: float
    price_per_tb_month: float

    def at(self, price_per_gpu_hour: float) -> "Run":
        """The same run on other capacity."""
        return replace(self, price_per_gpu_hour=price_per_gpu_hour)


@dataclass(frozen=True, slots=True, kw_only=True)
class Luck:
    """With BAD_LUCK there are at most `num_failures`, and so many hours."""

    num_failures: int
    wall_h: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """Hours of the run, on average. `luck` None: booked hours, which do not move."""

    wall_h: float
    useful_h: float
    num_failures: float
    luck: Luck | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """Where the money goes, by cause; sums to what all GPUs cost for the whole run, and the two that are not GPUs."""

    useful: float
    checkpoints: float
    rework: float
    restart: float
    waiting: float
    failed_recoveries: float
    manual: float
    storage: float

    @property
    def total(self) -> float:
        return self.wasted + self.useful + self.manual + self.storage

    @property
    def wasted(self) -> float:
        """GPU time that was paid and did not train."""
        return self.checkpoints + self.rework + self.restart + self.waiting + self.failed_recoveries


def duration(job: Job, found: Answer, run: Run) -> Duration | None:
    """How long it takes; None if hours are not given or nothing would ever be done."""
    if run.hours is None or found.goodput <= 0.0:
        return None
    wall_h = run.hours if run.booked else run.hours / found.goodput
    return Duration(
        wall_h=wall_h,
        useful_h=wall_h * found.goodput,
        num_failures=wall_h * _HOUR_S / job.mtbf_s,
        luck=None if run.booked else _luck(job, found, run.hours),
    )


def bill(job: Job, found: Answer, run: Run, time: Duration, *, stored_tb: float) -> Bill | None:
    """What it costs; None without a price."""
    if run.price_per_gpu_hour is None:
        return None
    everything = time.wall_h * job.num_gpus * run.price_per_gpu_hour
    per_failure = everything / job.mtbf_s
    tries = 1.0 / (1.0 - job.failed_share)
    return Bill(
        useful=everything * found.goodput,
        checkpoints=everything * found.waste.write,
        rework=everything * found.waste.rework,
        restart=per_failure * job.restart_s,
        waiting=per_failure * job.wait_s,
        failed_recoveries=per_failure * (job.restart_s + job.wait_s) * (tries - 1.0),
        manual=time.num_failures * (tries - 1.0) * run.manual_cost,
        storage=stored_tb * run.price_per_tb_month * time.wall_h / HOURS_PER_MONTH,
    )


def _luck(job: Job, found: Answer, useful_h: float) -> Luck:
    """The smallest number of failures that BAD_LUCK of all runs do not exceed, by bisection.

    With n failures the run takes (useful + n (T/2 + W + R)) / (1 - C/T); more failures make it longer, which brings
    more failures, but fewer than those it has more room for.
    """
    per_failure_h = (found.waste.rework + found.waste.restart) * job.mtbf_s / _HOUR_S

    def wall_h(num_failures: int) -> float:
        return (useful_h + num_failures * per_failure_h) / (1.0 - found.waste.write)

    def enough(num_failures: int) -> bool:
        return _at_most(num_failures, wall_h(num_failures) * _HOUR_S / job.mtbf_s) >= BAD_LUCK

    low, high = -1, 1
    while not enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return Luck(num_failures=high, wall_h=wall_h(high))


def _at_most(count: int, mean: float) -> float:
    """P(N <= count) of a Poisson number N."""
    if mean > _MANY:
        return NormalDist(mean, math.sqrt(mean)).cdf(count + 0.5)
    if count >= mean:
        return 1.0 - _tail(count + 1, mean, step=1)
    return _tail(count, mean, step=-1)


def _tail(count: int, mean: float, *, step: int) -> float:
    """P(N = count) and all beyond it in the direction of `step`, away from the mean."""
    term = math.exp(count * math.log(mean) - mean - math.lgamma(count + 1.0))
    total = 0.0
    while count >= 0 and term > total * 1e-17:
        total += term
        term *= count / mean if step < 0 else mean / (count + 1)
        count += step
    return total
