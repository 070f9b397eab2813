"""One writer at a time and always somebody waiting: does the storage idle while a lead-in runs?

`python -m rampmeter_coordinator.sim.arming --leads 30` or `--leads 0,2,10,30,90`. Every job alone could fill the budget
and writes 15 s there. A lead-in of 30 s that begins only when the storage is free would leave it two thirds idle.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rampmeter.core.messages import Kind
from rampmeter.core.pacer import PacerState
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.sim.job import Job, JobSpec, Save
from rampmeter_coordinator.sim.world import START_S, World

CAPACITY_BYTES_PER_S = 100 * 10**9
WRITE_S = 15.0
WARM_S = 1800.0
DELAY_S = 0.05
NUM_GPUS = 8192
WISH_S = 200.0
NUM_JOBS = 30
"""They wish to save each 200 s, however long their own periods grow since none of them fails, and 30 writes take 450 s:
somebody always waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmingResult:
    """Shares of the time in which a job waits for a slot.

    busy_share      bytes flow
    written_share   of the budget's bytes
    num_saves       by lead-in in seconds, as many as there are leads; nobody may be left out
    """

    leads_s: tuple[float, ...]
    seed: int
    waited_s: float
    busy_share: float
    written_share: float
    num_saves: tuple[int, ...]
    longest_queue_s: float


class Arming:
    """One run. Not to be used twice."""

    def __init__(self, leads_s: Sequence[float], *, seed: int, max_writers: int | None = None) -> None:
        config = PoolConfig(name="pool", capacity_bytes_per_s=CAPACITY_BYTES_PER_S, max_writers=max_writers)
        self.leads_s, self.seed = tuple(leads_s), seed
        self.world = World(config, seed=seed, delay_s=DELAY_S)
        self.saves: list[Save] = []
        self.jobs = [self._job(number, leads_s[number % len(leads_s)]) for number in range(NUM_JOBS)]
        self._waited_s = self._busy_s = self._written_bytes = 0.0
        self.world.watchers.append(self._watch)

    def _job(self, number: int, lead_s: float) -> Job:
        spec = JobSpec(
            uid=f"{number + 1:032x}",
            num_gpus=NUM_GPUS,
            num_bytes=int(WRITE_S * self.world.config.budget_bytes_per_s),
            stall_s=0.01,
            lead_s=lead_s,
            interval_max_s=WISH_S,
        )
        job = Job(self.world, spec, self.seed, on_save=self.saves.append)
        self.world.at(START_S + job.rng.uniform(0.0, 60.0), job.start)
        return job

    def run(self, duration_s: float) -> ArmingResult:
        """Simulate and measure; the first half hour does not count."""
        self.world.run_until(WARM_S + duration_s)
        waited_s = max(1e-9, self._waited_s)
        saves = [save for save in self.saves if save.granted_s > START_S + WARM_S]
        lead_of = {job.spec.uid: job.spec.lead_s for job in self.jobs}
        return ArmingResult(
            leads_s=self.leads_s,
            seed=self.seed,
            waited_s=self._waited_s,
            busy_share=self._busy_s / waited_s,
            written_share=self._written_bytes / waited_s / self.world.config.budget_bytes_per_s,
            num_saves=tuple(sum(lead_of[s.uid] == lead_s for s in saves) for lead_s in self.leads_s),
            longest_queue_s=max(save.granted_s - save.asked_s for save in saves),
        )

    def _watch(self, from_s: float, to_s: float) -> None:
        if from_s < START_S + WARM_S or not any(_waits(job) for job in self.jobs):
            return
        rate = self.world.storages[Kind.WRITE].rate_bytes_per_s
        self._waited_s += to_s - from_s
        self._busy_s += (to_s - from_s) * (rate > 0.0)
        self._written_bytes += (to_s - from_s) * rate


def _waits(job: Job) -> bool:
    attempt = job.attempt
    return (
        attempt is not None
        and attempt.transfer is None
        and attempt.pacer.state in (PacerState.DUE, PacerState.WAITING)
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description="How busy the storage is while somebody waits, one writer at a time."
    )
    parser.add_argument(
        "--leads", default="30", help="seconds from grant to first byte, one job each in turn"
    )
    parser.add_argument("--hours", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-writers", type=int)
    args = parser.parse_args()
    leads_s = [float(lead) for lead in args.leads.split(",")]
    arming = Arming(leads_s, seed=args.seed, max_writers=args.max_writers)
    sys.stdout.write(json.dumps(asdict(arming.run(args.hours * 3600.0))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
