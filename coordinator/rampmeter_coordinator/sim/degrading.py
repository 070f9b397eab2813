"""A storage slows down to two fifths and recovers while some jobs always write: how the learned cap follows.

`python -m rampmeter_coordinator.sim.degrading --writers 16 --seeds 10`. 400 GB/s, then 160, then 400 again, trembling
by a few percent. Saves have a lead-in and a tail, and some writers are bound by their CPUs: that is no slow storage.
"""

import argparse
import json
import math
import random
import sys
from dataclasses import asdict, dataclass

from rampmeter.core.messages import Kind
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.sim.crowd import crowd
from rampmeter_coordinator.sim.world import START_S, World

GB = 10**9
FAST_BYTES_PER_S, SLOW_BYTES_PER_S = 400 * GB, 160 * GB
CPU_BOUND_SHARE = 0.15
TREMBLE = 0.05
DROP_S, RECOVER_S, END_S = 300.0, 700.0, 1100.0
LEVEL = 1.15
"""What is granted has come down once it is at most this much above what the storage carries."""

BACK = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class DegradingResult:
    """What an outside observer saw. Seconds are infinite where it never happened.

    level_s             writing at less than was granted, until what is granted had come down
    back_s              after the recovery, until the cap was back at nine tenths of the ceiling
    mean_over, most_over   granted over carried while slow, from then on: the mean, and the largest over one second
    least_cap           smallest cap over min(ceiling, carried) in steady state: before, while slow once it was
                        level, and after it was back
    achieved_share      of what the storage could carry, before, slow and after
    """

    num_writers: int
    seed: int
    level_s: float
    back_s: float
    mean_over: float
    most_over: float
    least_cap: float
    achieved_share: tuple[float, float, float]

    @property
    def is_stuck(self) -> bool:
        """The cap never came back."""
        return self.back_s == math.inf


class Degrading:
    """One run. Not to be used twice."""

    def __init__(self, num_writers: int, *, seed: int, utilisation: float = 1.0) -> None:
        config = PoolConfig(name="pool", capacity_bytes_per_s=FAST_BYTES_PER_S, utilisation=utilisation)
        self.num_writers, self.seed = num_writers, seed
        self.world = World(config, seed=seed, delay_s=0.05)
        self._rng = random.Random(f"{seed}/degrading")
        self.jobs = crowd(
            self.world,
            num_writers,
            2 * num_writers + 4,
            self._rng,
            seed=seed,
            cpu_bound_share=CPU_BOUND_SHARE,
        )
        self._seen = _Seen(self.world)
        self.world.at(START_S + 1.0, self._each_second)

    def _each_second(self) -> None:
        """The storage trembles around what it carries; the observer looks."""
        at_s = self.world.now_s - START_S
        carries = SLOW_BYTES_PER_S if DROP_S <= at_s < RECOVER_S else FAST_BYTES_PER_S
        trembling = carries * max(0.5, 1.0 + self._rng.gauss(0.0, TREMBLE))
        self.world.storages[Kind.WRITE].set_capacity(trembling, self.world.now_s)
        self._seen.second(at_s, carries)
        self.world.at(self.world.now_s + 1.0, self._each_second)

    def run(self) -> DegradingResult:
        """Simulate and measure."""
        self.world.run_until(END_S)
        seen = self._seen
        return DegradingResult(
            num_writers=self.num_writers,
            seed=self.seed,
            level_s=seen.blocked_s if seen.is_level else math.inf,
            back_s=seen.back_s,
            mean_over=sum(seen.over) / max(1, len(seen.over)),
            most_over=max(seen.over, default=0.0),
            least_cap=min(seen.caps),
            achieved_share=tuple(seen.shares()),  # type: ignore[arg-type]
        )


class _Seen:
    """What was granted, carried and allowed, second by second."""

    def __init__(self, world: World) -> None:
        self.blocked_s = 0.0
        self.is_level = False
        self.back_s = math.inf
        self.over: list[float] = []
        self.caps: list[float] = []
        self._world = world
        self._written_bytes = [0.0]
        world.watchers.append(self._watch)

    def _watch(self, from_s: float, to_s: float) -> None:
        if from_s - START_S < DROP_S or self.is_level or from_s - START_S >= RECOVER_S:
            return
        storage = self._world.storages[Kind.WRITE]
        if storage.allowed_bytes_per_s > LEVEL * SLOW_BYTES_PER_S:
            wanted = sum(stream.wish_bytes_per_s for stream in storage.streams)
            self.blocked_s += (to_s - from_s) * (wanted > storage.capacity_bytes_per_s)
        elif storage.streams and self.blocked_s > 0.0:
            self.is_level = True

    def second(self, at_s: float, carries: float) -> None:
        """Look once a second."""
        storage = self._world.storages[Kind.WRITE]
        cap = self._world.ledger.pool_view(self._world.now_s).budget_bytes_per_s
        ceiling = self._world.config.budget_bytes_per_s
        storage.advance(self._world.now_s)
        if at_s in (DROP_S, RECOVER_S):
            self._written_bytes.append(storage.written_bytes)
        if at_s >= RECOVER_S and self.back_s == math.inf and cap >= BACK * ceiling:
            self.back_s = at_s - RECOVER_S
        slow = DROP_S <= at_s < RECOVER_S
        if slow and self.is_level and storage.streams:
            self.over.append(storage.allowed_bytes_per_s / carries)
        if self.is_level if slow else at_s < DROP_S or self.back_s < math.inf:
            self.caps.append(cap / min(ceiling, carries))

    def shares(self) -> list[float]:
        """Written over what could have been carried, in the three parts."""
        marks = [*self._written_bytes, self._world.storages[Kind.WRITE].written_bytes]
        could = (
            DROP_S * FAST_BYTES_PER_S,
            (RECOVER_S - DROP_S) * SLOW_BYTES_PER_S,
            (END_S - RECOVER_S) * FAST_BYTES_PER_S,
        )
        return [(late - early) / most for early, late, most in zip(marks, marks[1:], could, strict=False)]


def main() -> int:
    parser = argparse.ArgumentParser(
        description="A storage that slows down and recovers, and the learned cap."
    )
    parser.add_argument("--writers", default="1,2,16,64", help="how many write at a time")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--utilisation", type=float, default=1.0)
    args = parser.parse_args()
    for num_writers in map(int, args.writers.split(",")):
        for seed in range(1, args.seeds + 1):
            result = Degrading(num_writers, seed=seed, utilisation=args.utilisation).run()
            sys.stdout.write(json.dumps(asdict(result)) + "\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
