"""A storage falls to a quarter and is given back just after the learned cap fell: the worst moment to be given back.

`python -m rampmeter_coordinator.sim.returning --writers 1 --seeds 10`. Saves take a few seconds, so that hardly one is
renewed; jobs wish to save far more often than the storage can take, so that the price says when they do.
"""

import argparse
import json
import math
import random
import sys
from dataclasses import asdict, dataclass

from rampmeter.core.messages import Kind
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.sim.degrading import TREMBLE
from rampmeter_coordinator.sim.job import Job, JobSpec
from rampmeter_coordinator.sim.world import START_S, World

FAST_BYTES_PER_S = 40 * 10**6
SLOW_BYTES_PER_S = FAST_BYTES_PER_S // 4
WRITE_S = (2.0, 4.0)
LEAD_S, TAIL_S = 0.3, 0.3
NUM_GPUS = 8
TOO_OFTEN = 5.0
"""So many times as often as the storage can take it the jobs wish to save."""

LOOK_S = 0.25
DROP_S = 150.0
GIVEN_BACK_S = 1.5
"""After the cap has fallen: nothing is tried for most of what a finding holds it down."""

LATEST_S = 60.0
"""The storage is given back so long after it fell, however often the cap has."""

END_S = 600.0
BACK_CAP, BACK_INTERVAL = 0.9, 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturningResult:
    """What an outside observer saw. Seconds in which bytes arrived, from when the storage was fast again.

    cap_s        until the cap was back at nine tenths of the ceiling
    intervals_s  until every job's interval was at most a quarter above what fits the fast storage; infinite = never
    least_cap    smallest cap over its ceiling when the storage was given back
    """

    num_writers: int
    seed: int
    num_falls: int
    cap_s: float
    intervals_s: float
    least_cap: float

    @property
    def back_s(self) -> float:
        """Until both were back."""
        return max(self.cap_s, self.intervals_s)


class Returning:
    """One run. Not to be used twice. `num_falls` of the cap are waited for before the storage is given back."""

    def __init__(self, num_writers: int, *, seed: int, num_falls: int = 1) -> None:
        self.world = World(
            PoolConfig(name="pool", capacity_bytes_per_s=FAST_BYTES_PER_S), seed=seed, delay_s=0.05
        )
        self.num_writers, self.seed, self.num_falls = num_writers, seed, num_falls
        self._rng = random.Random(f"{seed}/returning")
        self._ceiling = self.world.config.budget_bytes_per_s
        self._write_s = self._rng.uniform(*WRITE_S)
        self._jobs = [self._job(number) for number in range(7 * num_writers + 1)]
        self._carries = FAST_BYTES_PER_S
        self._given_back_s = math.inf
        self._cap = self._lowest = self._ceiling
        self._seen_falls = 0
        self._fits_s = len(self._jobs) * self._write_s / num_writers
        self._written_s = 0.0
        self._cap_s = self._intervals_s = math.inf
        self.world.watchers.append(self._watch)
        self.world.at(START_S + LOOK_S, self._look)
        self.world.at(START_S + 1.0, self._tremble)

    def _job(self, number: int) -> Job:
        """One writer at a time may use everything and does not say what it can do; several have a part each."""
        share = self._ceiling // self.num_writers
        num_bytes = int(share * self._write_s)
        spec = JobSpec(
            uid=f"{number + 1:032x}",
            num_gpus=NUM_GPUS,
            num_bytes=num_bytes,
            stall_s=0.01,
            lead_s=LEAD_S,
            tail_s=TAIL_S,
            pipe_bytes_per_s=share if self.num_writers > 1 else None,
            interval_max_s=7.0 * self._write_s / TOO_OFTEN,
        )
        job = Job(self.world, spec, self.seed)
        self.world.at(START_S + self._rng.uniform(0.0, 10.0), job.start)
        return job

    def run(self) -> ReturningResult:
        """Simulate and measure."""
        self.world.run_until(END_S)
        return ReturningResult(
            num_writers=self.num_writers,
            seed=self.seed,
            num_falls=self._seen_falls,
            cap_s=self._cap_s,
            intervals_s=self._intervals_s,
            least_cap=self._lowest / self._ceiling,
        )

    # -- the storage -------------------------------------------------------------------------------------------

    def _tremble(self) -> None:
        """Around what it carries."""
        trembling = self._carries * max(0.5, 1.0 + self._rng.gauss(0.0, TREMBLE))
        self.world.storages[Kind.WRITE].set_capacity(trembling, self.world.now_s)
        self.world.at(self.world.now_s + 1.0, self._tremble)

    def _turn(self, bytes_per_s: int) -> None:
        self._carries = bytes_per_s
        self.world.storages[Kind.WRITE].set_capacity(float(bytes_per_s), self.world.now_s)

    # -- the observer ------------------------------------------------------------------------------------------

    def _watch(self, from_s: float, to_s: float) -> None:
        if from_s >= self._given_back_s:
            self._written_s += (to_s - from_s) * (self.world.storages[Kind.WRITE].rate_bytes_per_s > 0.0)

    def _look(self) -> None:
        now_s = self.world.now_s
        at_s = now_s - START_S
        cap = self.world.ledger.pool_view(now_s).budget_bytes_per_s
        if at_s == DROP_S:
            self._turn(SLOW_BYTES_PER_S)
        elif at_s > DROP_S and self._given_back_s == math.inf:
            self._seen_falls += cap < self._cap
            late_s = DROP_S + LATEST_S - at_s
            if (cap < self._cap and self._seen_falls >= self.num_falls) or late_s <= 0.0:
                self._given_back_s = now_s + GIVEN_BACK_S
                self.world.at(self._given_back_s, lambda: self._turn(FAST_BYTES_PER_S))
        elif now_s >= self._given_back_s:
            self._look_whether_back(cap)
        self._cap = cap
        self.world.at(now_s + LOOK_S, self._look)

    def _look_whether_back(self, cap: int) -> None:
        self._lowest = min(self._lowest, cap)
        if self._cap_s == math.inf and cap >= BACK_CAP * self._ceiling:
            self._cap_s = self._written_s
        if self._intervals_s == math.inf and max(self._intervals()) <= BACK_INTERVAL * self._fits_s:
            self._intervals_s = self._written_s

    def _intervals(self) -> list[float]:
        attempts = [job.attempt for job in self._jobs if job.attempt is not None]
        return [attempt.clock.plan.interval_s for attempt in attempts if attempt.clock.plan is not None]


def main() -> int:
    parser = argparse.ArgumentParser(description="A storage that is given back just after the cap fell.")
    parser.add_argument("--writers", default="1,2,8", help="how many write at a time")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--falls", default="1,2,3", help="given back after so many falls of the cap")
    args = parser.parse_args()
    for num_writers in map(int, args.writers.split(",")):
        for num_falls in map(int, args.falls.split(",")):
            for seed in range(1, args.seeds + 1):
                result = Returning(num_writers, seed=seed, num_falls=num_falls).run()
                sys.stdout.write(json.dumps(asdict(result)) + "\n")
                sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
