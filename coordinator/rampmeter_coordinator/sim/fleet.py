"""The mixed fleet under one coordinator: how far its waste is above the priced bound.

`python -m rampmeter_coordinator.sim.fleet --loads .5,.95,3 --json`. Load F is what all own periods ask of the capacity.
Waste is compared per second that training is up, with the expectation of the rework (see `training`), so that the
luck of a few failures does not hide a hundredth of a point; restarts count with what they took beyond the restart and
the read alone.
"""

import argparse
import itertools
import json
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.model.urgency import ROUND_TRIP_S
from rampmeter_coordinator.sim.job import Job, JobSpec, Save
from rampmeter_coordinator.sim.population import Bound, capacity_for, mixed_fleet, priced_bound
from rampmeter_coordinator.sim.training import Sums
from rampmeter_coordinator.sim.words import DEADLINE_S
from rampmeter_coordinator.sim.world import START_S, World

DAY_S = 86_400.0
HEARTBEAT_S = 28.0
"""As seldom as a job may call without counting as silent (59 s after a confirmed request): it saves computing."""

START_WITHIN_S = 600.0
NUM_BATCHES = 8
SAMPLE_S = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetScenario:
    """What is simulated. The first `warm_days` are not measured."""

    load: float
    num_jobs: int = 200
    days: float = 4.0
    warm_days: float = 0.5
    seed: int = 1
    share_preempted: float = 0.02
    utilisation: float = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetResult:
    """Points are hundredths of all GPU time; errors are standard errors over batches of the measured time.

    bound_points         stall, slow-down and rework at the optimum
    waste_points         the same as simulated, the rework by its expectation
    gap_points           waste_points - bound_points, restarts beyond restart and read alone included
    rework_seen_points   the rework as it happened: luck included
    restart_points       all restarts and restores
    longest_age          largest age of a durable state, in multiples of the plan's interval
    longest_queue        longest wait for a slot, in multiples of the plan's interval
    num_missed           preemption saves that were durable after their deadline
    num_given_up         preemption saves that were not written, since the start: they would have been too late
    num_hopeless         those of them that would have been too late on an idle pool as well
    num_ungoverned       preemption saves that were written without a lease
    """

    load: float
    seed: int
    num_jobs: int
    measured_days: float
    capacity_bytes_per_s: int
    price_gpu_s_per_byte: float
    bound_points: float
    waste_points: float
    gap_points: float
    gap_error_points: float
    rework_seen_points: float
    restart_points: float
    restore_wait_points: float
    longest_age: float
    longest_queue: float
    mean_write_s: float
    written_share: float
    num_saves: int
    num_failures: int
    num_urgent: int
    num_missed: int
    num_given_up: int
    num_hopeless: int
    num_ungoverned: int


class Fleet:
    """One run. Not to be used twice."""

    def __init__(self, scenario: FleetScenario) -> None:
        self.scenario = scenario
        self.specs = mixed_fleet(scenario.num_jobs, scenario.seed, share_preempted=scenario.share_preempted)
        config = PoolConfig(
            name="pool",
            capacity_bytes_per_s=capacity_for(self.specs, scenario.load, scenario.utilisation),
            utilisation=scenario.utilisation,
        )
        self.bound = priced_bound(self.specs, config.budget_bytes_per_s)
        self.world = World(config, seed=scenario.seed)
        self.saves: list[Save] = []
        self.jobs = [self._job(spec) for spec in self.specs]
        self._oldest = 0.0

    def _job(self, spec: JobSpec) -> Job:
        job = Job(self.world, spec, self.scenario.seed, heartbeat_s=HEARTBEAT_S, on_save=self.saves.append)
        self.world.at(START_S + job.rng.uniform(0.0, START_WITHIN_S), job.start)
        return job

    def run(self, progress: Callable[[str], None]) -> FleetResult:
        """Simulate and measure."""
        warm_s, end_s = self.scenario.warm_days * DAY_S, self.scenario.days * DAY_S
        self._run_until(warm_s)
        self.saves.clear()
        self._oldest = 0.0
        written = self._written_bytes()
        rows = [self._sums()]
        for number in range(1, NUM_BATCHES + 1):
            self._run_until(warm_s + (end_s - warm_s) * number / NUM_BATCHES)
            rows.append(self._sums())
            progress(f"load {self.scenario.load}: {number} of {NUM_BATCHES} parts measured")
        written = self._written_bytes() - written
        return self._result(rows, written / (end_s - warm_s))

    def _run_until(self, end_s: float) -> None:
        """Half an hour at a time: jobs that wait for ever have no save to tell of it."""
        now_s = self.world.now_s - START_S
        while now_s < end_s:
            now_s = min(end_s, now_s + SAMPLE_S)
            self.world.run_until(now_s)
            self._oldest = max([self._oldest, *(_age_in_intervals(job) for job in self.jobs)])

    def _sums(self) -> list[Sums]:
        return [job.training.sums(self.world.now_s) for job in self.jobs]

    def _written_bytes(self) -> float:
        return sum(storage.written_bytes for storage in self.world.storages.values())

    def _result(self, rows: Sequence[Sequence[Sums]], written_bytes_per_s: float) -> FleetResult:
        scenario, config, saves = self.scenario, self.world.config, self.saves
        window = _window(rows[0], rows[-1])
        budget = config.budget_bytes_per_s
        bound = _points(self.specs, window, lambda _, sums, waste: waste * _up_s(sums), self.bound)
        waste = _points(self.specs, window, _lost_s, self.bound)
        waits = _points(self.specs, window, _restore_wait_s, self.bound)
        urgent = [save for save in saves if save.urgent_s is not None]
        return FleetResult(
            load=scenario.load,
            seed=scenario.seed,
            num_jobs=scenario.num_jobs,
            measured_days=scenario.days - scenario.warm_days,
            capacity_bytes_per_s=config.capacity_bytes_per_s,
            price_gpu_s_per_byte=self.bound.price_gpu_s_per_byte,
            bound_points=bound,
            waste_points=waste,
            gap_points=waste + waits - bound,
            gap_error_points=self._error(rows),
            rework_seen_points=_points(self.specs, window, lambda _, sums, __: sums.rework_s, self.bound),
            restart_points=_points(
                self.specs, window, lambda _, sums, __: sums.restart_s + sums.restore_s, self.bound
            ),
            restore_wait_points=waits,
            longest_age=max([self._oldest, *(save.age_s / save.interval_s for save in saves)]),
            longest_queue=max((s.granted_s - s.asked_s) / s.interval_s for s in saves),
            mean_write_s=statistics.fmean(save.committed_s - save.granted_s for save in saves),
            written_share=written_bytes_per_s / budget,
            num_saves=len(saves),
            num_failures=sum(sums.num_failures for sums in window),
            num_urgent=len(urgent),
            num_missed=sum(s.committed_s - (s.urgent_s or 0.0) > DEADLINE_S for s in urgent),
            num_given_up=sum(job.num_given_up for job in self.jobs),
            num_hopeless=sum(job.num_given_up for job in self.jobs if _is_hopeless(job.spec, budget)),
            num_ungoverned=sum(not save.governed for save in saves),
        )

    def _error(self, rows: Sequence[Sequence[Sums]]) -> float:
        def gap(spec: JobSpec, sums: Sums, waste: float) -> float:
            return _lost_s(spec, sums, waste) + sums.restore_wait_s - waste * _up_s(sums)

        gaps = [
            _points(self.specs, _window(before, after), gap, self.bound)
            for before, after in itertools.pairwise(rows)
        ]
        return statistics.stdev(gaps) / math.sqrt(len(gaps))


_Figure = Callable[[JobSpec, Sums, float], float]
"""Seconds of one job, from what it is, what became of its time, and its waste at the bound."""


def _points(specs: Sequence[JobSpec], window: Sequence[Sums], figure: _Figure, bound: Bound) -> float:
    rows = list(zip(specs, window, bound.waste, strict=True))
    all_s = sum(spec.num_gpus * sums.observed_s for spec, sums, _ in rows)
    return 100.0 * sum(spec.num_gpus * figure(spec, sums, waste) for spec, sums, waste in rows) / all_s


def _window(before: Sequence[Sums], after: Sequence[Sums]) -> list[Sums]:
    return [late.minus(early) for early, late in zip(before, after, strict=True)]


def _up_s(sums: Sums) -> float:
    return sums.observed_s - sums.restart_s - sums.restore_s


def _lost_s(_: JobSpec, sums: Sums, __: float) -> float:
    return sums.stall_s + sums.slowed_s + sums.expected_rework_s


def _restore_wait_s(_: JobSpec, sums: Sums, __: float) -> float:
    return sums.restore_wait_s


def _is_hopeless(spec: JobSpec, budget_bytes_per_s: float) -> bool:
    """Room is made within a round trip; what is left must do for the job alone."""
    return spec.stall_s + spec.alone_s(budget_bytes_per_s) > DEADLINE_S - ROUND_TRIP_S


def _age_in_intervals(job: Job) -> float:
    plan = job.attempt.clock.plan if job.attempt else None
    return job.training.age_s / plan.interval_s if plan else 0.0


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def main() -> int:
    parser = argparse.ArgumentParser(
        description="A mixed fleet under one coordinator, against the priced bound."
    )
    parser.add_argument("--loads", default="0.5,0.8,0.95,1.5,3", help="own-period demand / capacity")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--days", type=float, default=4.0, help="simulated days")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--preempted", type=float, default=0.02, help="share of saves with a deadline of 120 s"
    )
    parser.add_argument("--warm", type=float, default=0.5, help="days at the start that are not measured")
    parser.add_argument("--json", action="store_true", help="one JSON object per load and line")
    args = parser.parse_args()
    for load in args.loads.split(","):
        scenario = FleetScenario(
            load=float(load),
            num_jobs=args.jobs,
            days=args.days,
            warm_days=args.warm,
            seed=args.seed,
            share_preempted=args.preempted,
        )
        result = asdict(Fleet(scenario).run(_say))
        line = json.dumps(result) if args.json else " ".join(f"{k}={v:.5g}" for k, v in result.items())
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
