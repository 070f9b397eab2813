"""A writer stops in the middle of its save and makes no progress any more: when is its share in use by others?

`python -m rampmeter_coordinator.sim.hanging --writers 16 --seeds 10`. The storage is as it was, and somebody always
waits. The writer itself renews its lease as before: only its bytes tell.
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
from rampmeter_coordinator.sim.job import Job
from rampmeter_coordinator.sim.storage import Stream
from rampmeter_coordinator.sim.world import START_S, World

GB = 10**9
CARRIES_BYTES_PER_S = 400 * GB
HANG_S, END_S = 200.0, 900.0
MOST_OF_IT = 0.75
"""The share is back in use when others write this much of it beside what they wrote before."""


RENEWALS_S = 15.0
SEEN_AFTER_S = 10.5
"""Two renewals: so long it takes until somebody who starts is known to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingResult:
    """What an outside observer saw. Seconds from the hang on, infinite where it never happened.

    reused_s    until the others together may write, and do, nearly all that storage carries
    revoked_s   until the writer's lease was taken back
    due_s       when that was to happen at the latest: after max(60 s, 3 x what the rest of its bytes would have taken)
                and three renewals, in which others were seen to write
    least_cap   smallest cap over its ceiling from the hang on: a hung writer is no slow storage
    """

    num_writers: int
    seed: int
    reused_s: float
    revoked_s: float
    due_s: float
    least_cap: float


class Hanging:
    """One run. Not to be used twice."""

    def __init__(self, num_writers: int, *, seed: int) -> None:
        config = PoolConfig(name="pool", capacity_bytes_per_s=CARRIES_BYTES_PER_S, utilisation=1.0)
        self.num_writers, self.seed = num_writers, seed
        self.world = World(config, seed=seed, delay_s=0.05)
        rng = random.Random(f"{seed}/hanging")
        self.jobs = crowd(self.world, num_writers, 6 * num_writers + 8, rng, seed=seed)
        self.reused_s = self.revoked_s = math.inf
        self._due_s = 0.0
        self._others_since_s = math.inf
        self._least_cap = 1.0
        self._hung: tuple[Job, Stream, float] | None = None
        self._share = 0.0
        self._fence: str | None = None
        self.world.at(START_S + HANG_S, self._hang)
        self.world.watchers.append(self._watch)

    def _hang(self) -> None:
        """The writer with the most before it hangs, once there is one that has written for a while."""
        writing = [(job, _stream(job)) for job in self.jobs]
        at_work = [
            (job, stream)
            for job, stream in writing
            if stream is not None and stream.done_bytes > 0.25 * stream.num_bytes and not stream.is_done
        ]
        if not at_work:
            self.world.at(self.world.now_s + 1.0, self._hang)
            return
        job, stream = max(at_work, key=lambda pair: pair[1].allowed_bytes_per_s)
        left_s = (stream.num_bytes - stream.done_bytes) / stream.allowed_bytes_per_s
        self._due_s = max(60.0, 3.0 * left_s) + RENEWALS_S
        self._hung = (job, stream, self.world.now_s)
        self._share, self._fence = stream.allowed_bytes_per_s, self._fence_of(job)
        job.hang()

    def _watch(self, from_s: float, to_s: float) -> None:
        if self._hung is None:
            return
        job, hung, since_s = self._hung
        storage, pool = self.world.storages[Kind.WRITE], self.world.ledger.pool_view(from_s)
        ceiling = self.world.config.budget_bytes_per_s
        self._least_cap = min(self._least_cap, pool.budget_bytes_per_s / ceiling)
        others = sum(stream.rate_bytes_per_s for stream in storage.streams if stream is not hung)
        if others >= ceiling - (1.0 - MOST_OF_IT) * self._share:
            self.reused_s = min(self.reused_s, from_s - since_s)
        self._others_since_s = min(self._others_since_s, from_s) if others else math.inf
        if self.revoked_s == math.inf and from_s < self._others_since_s + SEEN_AFTER_S:
            self._due_s += to_s - from_s
        if self._fence_of(job) != self._fence:
            self.revoked_s = min(self.revoked_s, from_s - since_s)

    def _fence_of(self, job: Job) -> str | None:
        """Of the job's lease; None without one."""
        views = self.world.ledger.lease_views(self.world.now_s)
        return next((str(view.fence) for view in views if view.job_uid == job.spec.uid), None)

    def run(self) -> HangingResult:
        """Simulate and measure."""
        self.world.run_until(END_S)
        return HangingResult(
            num_writers=self.num_writers,
            seed=self.seed,
            reused_s=self.reused_s,
            revoked_s=self.revoked_s,
            due_s=self._due_s,
            least_cap=self._least_cap,
        )


def _stream(job: Job) -> Stream | None:
    """What the job writes now."""
    transfer = job.attempt.transfer if job.attempt is not None else None
    return transfer.stream if transfer is not None and transfer.is_open and not transfer.is_over else None


def main() -> int:
    parser = argparse.ArgumentParser(description="A writer that hangs, and when its share is in use again.")
    parser.add_argument("--writers", default="2,4,16", help="how many write at a time")
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    for num_writers in map(int, args.writers.split(",")):
        for seed in range(1, args.seeds + 1):
            sys.stdout.write(json.dumps(asdict(Hanging(num_writers, seed=seed).run())) + "\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
