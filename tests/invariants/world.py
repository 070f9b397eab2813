"""A small adversarial world on a manual clock: one coordinator, some jobs, a bad network, and an outside observer."""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from invariants.observer import Observer, Violation
from invariants.process import Job, Process
from rampmeter.core.messages import AnyAnswer, Request
from rampmeter_coordinator.model.commands import Changes, Command, Disconnected, Refusal, Tick
from rampmeter_coordinator.model.ledger import Ledger
from rampmeter_coordinator.model.pool import PoolConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How bad it is. Rates are per second of the world's time."""

    loss: float = 0.1
    duplicates: float = 0.1
    delay_s: float = 4.0
    late_s: float = 80.0
    partitions: float = 1 / 100
    freezes: float = 1 / 400
    deaths: float = 1 / 400
    zombies: float = 1 / 300
    finishes: float = 1 / 900
    restarts: float = 1 / 200
    forget: float = 0.2
    """Share of restarts without memory; as many again with a memory of another boot."""
    shrink: float = 0.3
    retune: float = 0.0
    """Share of restarts with other lease times."""


CALM = Faults(
    loss=0, duplicates=0, delay_s=0.05, partitions=0, freezes=0, deaths=0, zombies=0, finishes=0, restarts=0
)


class World:
    """`run` for some time, then read `violations`, `num_events` and the jobs' saves."""

    def __init__(
        self, seed: int, faults: Faults, *, num_jobs: int = 8, config: PoolConfig | None = None
    ) -> None:
        self.now_s = 1000.0
        self.num_events = 0
        self.faults = faults
        self.rng = random.Random(seed)
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._config = config or PoolConfig(name="pool", capacity_bytes_per_s=1000)
        self._observer = Observer(self._config)
        self._epoch = 1
        self._forgot_in = 0
        self._grace_until_s = 0.0
        self._up = True
        self._open: dict[tuple[str, int, int], Process] = {}
        self._records: dict[str, bytes] = {}
        self._meta = b""
        self._polls: dict[Process, float] = {}
        self.ledger = Ledger.new(self._config, epoch=1, seed=seed, grace_until_s=0.0)
        self.jobs = [self._job(number) for number in range(num_jobs)]
        self.processes: list[Process] = []
        for job in self.jobs:
            self.start(job)
        self._schedule_faults()

    def _job(self, number: int) -> Job:
        lead_s = self.rng.choice([0.0, 0.0, 2.0, 10.0, 30.0, 90.0])
        max_rate = self.rng.choice([None, None, 100, 300, 5000])
        return Job(
            uid=f"{number:032x}",
            num_bytes=self.rng.randint(500, 20_000),
            max_bytes_per_s=max_rate,
            lead_s=lead_s,
        )

    @property
    def violations(self) -> list[Violation]:
        """What was seen that must not be."""
        return self._observer.violations

    def violated(self, what: str) -> None:
        """Something was noticed that must not be."""
        self._observer.violated(self.now_s, what)

    # -- time ----------------------------------------------------------------------------------------------------

    def run(self, duration_s: float) -> None:
        """Let time pass, up to the first violation; the observer looks after every event."""
        end_s = self.now_s + duration_s
        while self._queue[0][0] <= end_s and not self.violations:
            self.now_s, _, happen = heapq.heappop(self._queue)
            happen()
            self.num_events += 1
            self._observer.look(self.now_s, self.processes)
        self.now_s = max(self.now_s, end_s)

    def at(self, at_s: float, happen: Callable[[], None]) -> None:
        """Have something happen."""
        heapq.heappush(self._queue, (at_s, next(self._order), happen))

    def poll_at(self, process: Process, at_s: float) -> None:
        """Poll a process at `at_s`, unless that is arranged for an earlier time already."""
        if self.now_s < self._polls.get(process, 0.0) <= at_s:
            return
        self._polls[process] = at_s
        self.at(at_s, lambda: self._polls.get(process) == at_s and process.poll())

    # -- network -------------------------------------------------------------------------------------------------

    def send(self, process: Process, request: Request) -> None:
        """Carry a request to the coordinator: late, lost or twice."""
        key = (request.job_uid, request.attempt, request.seq)
        self._open[key] = process
        if self.now_s >= process.cut_up_until_s and self.rng.random() >= self.faults.loss:
            self.at(self.now_s + self._delay_s(), lambda: self._arrive(process, request))
        if self.rng.random() < self.faults.duplicates:
            late_s = self.rng.uniform(0.0, self.faults.late_s)
            self.at(self.now_s + late_s, lambda: self._up and self._apply(request))

    def hang_up(self, process: Process, request: Request) -> None:
        """The client waits no more for this answer; the coordinator mostly hears of it."""
        key = (request.job_uid, request.attempt, request.seq)
        self._open.pop(key, None)
        gone = Disconnected(job_uid=key[0], attempt=key[1], seq=key[2])
        if self.now_s >= process.cut_up_until_s and self.rng.random() >= self.faults.loss:
            self.at(
                self.now_s + self._delay_s(), lambda: self._up and key not in self._open and self._apply(gone)
            )

    def _arrive(self, process: Process, request: Request) -> None:
        if self._up:
            self._apply(request)
        else:
            self._carry_back(process, request.seq, None)

    def _carry_back(self, process: Process, seq: int, body: AnyAnswer | Refusal | None) -> None:
        if self.now_s >= process.cut_down_until_s and self.rng.random() >= self.faults.loss:
            life = self._epoch
            self.at(self.now_s + self._delay_s(), lambda: self._hear(process, seq, body, life))

    def _hear(self, process: Process, seq: int, body: AnyAnswer | Refusal | None, life: int) -> None:
        if self.now_s < process.frozen_until_s:
            self.at(process.frozen_until_s, lambda: self._hear(process, seq, body, life))
        elif process.hear(seq, body) and life >= self._forgot_in:
            process.forgotten = False

    def _delay_s(self) -> float:
        slow = self.rng.random() < 0.2
        return self.rng.uniform(0.0, self.faults.delay_s if slow else min(0.1, self.faults.delay_s))

    # -- coordinator ---------------------------------------------------------------------------------------------

    def _apply(self, command: Command) -> None:
        replies = self.ledger.apply(command, self.now_s)
        self._keep(self.ledger.take_changes())
        for reply in replies:
            process = self._open.get((reply.job_uid, reply.attempt, reply.seq))
            if process is not None:
                self._carry_back(process, reply.seq, reply.body)
        self._observer.look_inside(self.now_s, self.ledger)
        wake_s = self.ledger.wake_at_s()
        if wake_s is not None:
            life = self._epoch
            self.at(max(wake_s, self.now_s), lambda: self._tick(life, wake_s))

    def _tick(self, life: int, wake_s: float) -> None:
        if self._up and life == self._epoch and self.ledger.wake_at_s() == wake_s:
            self._apply(Tick())

    def _keep(self, changes: Changes) -> None:
        for uid, record in changes.records.items():
            if record is None:
                self._records.pop(uid, None)
            else:
                self._records[uid] = record
        self._meta = changes.meta

    def crash(self, down_s: float, memory: str, config: PoolConfig) -> None:
        """The coordinator dies and comes back after `down_s`; `memory` is kept, other_boot or lost."""
        if not self._up:
            return
        self._up = False
        self._open.clear()
        self.at(self.now_s + down_s, lambda: self._restart(memory, config))

    def _restart(self, memory: str, config: PoolConfig) -> None:
        self._config = config
        self._observer.configured(self.now_s, config)
        self._epoch, self._up = self._epoch + 1, True
        grace_s = self.now_s + self._observer.longest_lease_s
        if memory == "lost":
            self._records, self._forgot_in = {}, self._epoch
            self.ledger = Ledger.new(self._config, epoch=self._epoch, seed=self._epoch, grace_until_s=grace_s)
            for process in self.processes:
                process.forgotten = True
        else:
            kept_grace_s = self._grace_until_s if self._grace_until_s > self.now_s else 0.0
            grace_s = grace_s if memory == "other_boot" else kept_grace_s
            self.ledger = Ledger.load(
                self._config,
                epoch=self._epoch,
                seed=self._epoch,
                records=self._records,
                meta=self._meta,
                grace_until_s=grace_s,
            )
        self._grace_until_s = grace_s
        self._apply(Tick())

    # -- faults --------------------------------------------------------------------------------------------------

    def _schedule_faults(self) -> None:
        happenings = {
            self._partition: self.faults.partitions * len(self.jobs) / 4,
            self._freeze: self.faults.freezes * len(self.jobs) / 4,
            self._die: self.faults.deaths,
            self._zombie: self.faults.zombies,
            self._finish: self.faults.finishes,
            self._restart_coordinator: self.faults.restarts,
        }
        for happen, rate in happenings.items():
            if rate:
                self._again_and_again(happen, rate)

    def _again_and_again(self, happen: Callable[[], None], rate: float) -> None:
        def once() -> None:
            if self.faults is not CALM:
                happen()
                self.at(self.now_s + self.rng.expovariate(rate), once)

        self.at(self.now_s + self.rng.expovariate(rate), once)

    def _pick(self) -> Process | None:
        living = [process for process in self.processes if process.alive]
        return self.rng.choice(living) if living else None

    def _partition(self) -> None:
        everybody = self.rng.random() < 0.15
        until_s = self.now_s + self.rng.choice([5.0, 20.0, 60.0, 120.0, 240.0]) * self.rng.uniform(0.5, 1.5)
        way = self.rng.choice(["up", "down", "both"])
        for process in self.processes if everybody else [self._pick()]:
            if process is not None:
                process.cut_up_until_s = until_s if way != "down" else process.cut_up_until_s
                process.cut_down_until_s = until_s if way != "up" else process.cut_down_until_s

    def _freeze(self) -> None:
        process = self._pick()
        if process is not None:
            process.frozen_until_s = self.now_s + self.rng.uniform(1.0, 150.0)
            self.at(process.frozen_until_s, process.poll)

    def _die(self) -> None:
        process = self._pick()
        if process is not None:
            process.alive = False
            self.at(self.now_s + self.rng.uniform(1.0, 120.0), lambda: self._revive(process.job))

    def _zombie(self) -> None:
        """A new attempt starts while the old process lives on, mostly cut off."""
        process = self._pick()
        if process is not None:
            if self.rng.random() < 0.7:
                process.cut_up_until_s = process.cut_down_until_s = self.now_s + self.rng.uniform(30.0, 400.0)
            self.start(process.job)

    def _finish(self) -> None:
        process = self._pick()
        if process is not None:
            process.finishing = True
            self.at(self.now_s + self.rng.uniform(20.0, 200.0), lambda: self._revive(process.job))

    def _restart_coordinator(self) -> None:
        number = self.rng.random()
        forget = self.faults.forget
        memory = "lost" if number < forget else "other_boot" if number < 2 * forget else "kept"
        down_s = self.rng.choice([0.3, 3.0, 40.0, 120.0]) * self.rng.uniform(0.5, 1.5)
        config = replace(self._config, capacity_bytes_per_s=1000)
        if self.rng.random() < self.faults.shrink:
            config = replace(config, capacity_bytes_per_s=self.rng.randint(50, 1000))
        if self.rng.random() < self.faults.retune:
            config = replace(config, ttl_s=self.rng.choice([20.0, 30.0, 45.0, 60.0]))
        self.crash(down_s, memory, config)

    def _revive(self, job: Job) -> None:
        if not any(process.alive for process in self.processes if process.job is job):
            self.start(job)

    def start(self, job: Job) -> Process:
        """A new attempt of the job: claims the root, remembers the newest plan, registers."""
        older = [process for process in self.processes if process.job is job]
        job.newest_claim += 1
        job.claimed_s[job.newest_claim] = self.now_s
        # Whoever says goodbye forgets the plan kept in the root first: a finished job's safe rate counts no more.
        remembered = older[-1].clock.plan if older and not older[-1].finishing else None
        process = Process(self, job, self.rng, remembered)
        process.forgotten = any(old.forgotten for old in older)
        self.processes = (
            [old for old in self.processes if old.alive or old is older[-1]] if older else self.processes
        )
        self.processes.append(process)
        self.at(self.now_s, process.poll)
        return process

    def calm_down(self, duration_s: float) -> None:
        """No more faults; whatever is broken heals, and then everybody must get on."""
        self.faults = CALM
        for process in self.processes:
            process.cut_up_until_s = process.cut_down_until_s = 0.0
        if not self._up:
            self.run(200.0)
        self.crash(1.0, "kept", replace(self._config, capacity_bytes_per_s=1000))
        for job in self.jobs:
            self._revive(job)
        start_s = self.now_s
        self.run(duration_s)
        if self.violations:
            return
        for job in self.jobs:
            healthy = any(
                process.alive and not process.finishing for process in self.processes if process.job is job
            )
            if healthy and not any(at_s > start_s for at_s in job.saved_s):
                self.violated(f"job {job.uid[-2:]} has starved")
