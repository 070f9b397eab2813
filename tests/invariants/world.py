"""A small adversarial world on a manual clock: one pool, its coordinators, some jobs, a bad network, an observer.

Time passes with `run`; everything that goes wrong is a verb here (cut, freeze, kill, crash, fail_over ...), done at
random by `faults.Weather` or on purpose by a test. Nothing here judges: `observer` does.
"""

import heapq
import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import replace

from invariants.faults import CALM, Faults, Weather
from invariants.leader import Leader, Store
from invariants.network import Network
from invariants.observer import Observer, Violation
from invariants.process import Process
from invariants.save import Job
from rampmeter_coordinator.model.commands import Tick
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.model.shifting import ClockOffset

POOL = PoolConfig(name="pool", capacity_bytes_per_s=1000)


class World:
    """`run` for some time, then read `violations`, `num_events` and the jobs' saves."""

    def __init__(
        self, seed: int, faults: Faults, *, num_jobs: int = 8, config: PoolConfig | None = None
    ) -> None:
        self.now_s = 1000.0
        self.num_events = 0
        self.faults = faults
        self.rng = random.Random(seed)
        self.config = config or POOL
        self.storage_share = 1.0
        """What the storage does of what it is asked for."""
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._polls: dict[Process, float] = {}
        self.observer = Observer(self.config)
        self.network = Network(self, self.rng)
        self.store = Store()
        self.leader = Leader(self, self.config, clock_offset_s=0.0)
        self.leader.begin(grace_s=0.0, memory=False)
        self._deposed: tuple[Leader, float] | None = None
        self._come_back: Callable[[], None] = lambda: None
        self.jobs = [self._job(number) for number in range(num_jobs)]
        self.processes: list[Process] = []
        for job in self.jobs:
            self.start(job)
        Weather(self).begin()

    def _job(self, number: int) -> Job:
        lead_s = self.rng.choice([0.0, 0.0, 2.0, 10.0, 30.0, 90.0])
        max_rate = self.rng.choice([None, None, 100, 300, 20_000])
        return Job(
            uid=f"{number:032x}",
            num_bytes=self.rng.randint(500, 20_000),
            max_bytes_per_s=max_rate,
            lead_s=lead_s,
            tenant=self.rng.choice([None, "red", "blue"]),
        )

    @property
    def violations(self) -> list[Violation]:
        """What was seen that must not be."""
        return self.observer.violations

    def violated(self, what: str) -> None:
        """Something was noticed that must not be."""
        self.observer.violated(self.now_s, what)

    # -- time ----------------------------------------------------------------------------------------------------

    def run(self, duration_s: float) -> None:
        """Let time pass, up to the first violation; the observer looks after every event."""
        end_s = self.now_s + duration_s
        while self._queue and self._queue[0][0] <= end_s and not self.violations:
            self.now_s, _, happen = heapq.heappop(self._queue)
            happen()
            self.num_events += 1
            self.observer.look(self.now_s, self.processes)
        self.now_s = max(self.now_s, end_s)

    def at(self, at_s: float, happen: Callable[[], None]) -> None:
        """Have something happen."""
        heapq.heappush(self._queue, (at_s, next(self._order), happen))

    def after(self, delay_s: float, happen: Callable[[], None]) -> None:
        """Have something happen in a while."""
        self.at(self.now_s + delay_s, happen)

    def poll_at(self, process: Process, at_s: float) -> None:
        """Poll a process at `at_s`, unless that is arranged for an earlier time already."""
        if self.now_s < self._polls.get(process, 0.0) <= at_s:
            return
        self._polls[process] = at_s
        self.at(at_s, lambda: self._polls.get(process) == at_s and process.poll())

    def poll_all(self) -> None:
        """Something has changed for everybody."""
        for process in self.processes:
            process.poll()

    # -- jobs ----------------------------------------------------------------------------------------------------

    def start(self, job: Job, *, restore: bool = False) -> Process:
        """A new attempt of the job: claims the root, remembers the newest plan, registers."""
        older = [process for process in self.processes if process.job is job]
        for process in older:
            process.look_anew()
        job.newest_claim += 1
        job.claimed_s[job.newest_claim] = self.now_s
        # Whoever says goodbye forgets the plan kept in the root first: a finished job's safe rate counts no more.
        remembered = older[-1].clock.plan if older and not older[-1].finishing else None
        process = Process(self, job, self.rng, remembered, restore=restore)
        process.forgotten_by = max((old.forgotten_by for old in older), default=0)
        self.processes = [
            old for old in self.processes if old.alive or old.job is not job or old is older[-1]
        ]
        self.processes.append(process)
        self.at(self.now_s, process.poll)
        return process

    def process_of(self, job: Job) -> Process:
        """The newest attempt of the job."""
        return next(process for process in reversed(self.processes) if process.job is job)

    def revive(self, job: Job, *, restore: bool = False) -> None:
        """The job is started again, if nothing of it lives."""
        if not any(process.alive for process in self.processes if process.job is job):
            self.start(job, restore=restore)

    def cut(self, processes: Iterable[Process], way: str, for_s: float) -> None:
        """Nothing gets up to the coordinator, down from it, or both, for a while."""
        until_s = self.now_s + for_s
        for process in processes:
            process.cut_up_until_s = until_s if way != "down" else process.cut_up_until_s
            process.cut_down_until_s = until_s if way != "up" else process.cut_down_until_s

    def freeze(self, process: Process, for_s: float) -> None:
        """The process is stopped, or its machine suspended: its clock goes on."""
        process.frozen_until_s = self.now_s + for_s
        self.at(process.frozen_until_s, process.poll)

    def kill(self, process: Process, *, back_after_s: float, restore: bool = False) -> None:
        """The process ends without a word; a new attempt comes later, perhaps to read its checkpoint first."""
        process.alive = False
        self.after(back_after_s, lambda: self.revive(process.job, restore=restore))

    def start_beside(self, process: Process, cut_for_s: float) -> None:
        """A new attempt starts while the old process lives on, cut off for a while."""
        if cut_for_s:
            self.cut([process], "both", cut_for_s)
        self.start(process.job)

    def finish(self, process: Process, *, back_after_s: float) -> None:
        """The process says goodbye; a new attempt comes later."""
        process.finishing = True
        process.poll()
        self.after(back_after_s, lambda: self.revive(process.job))

    def hang(self, process: Process, for_s: float) -> None:
        """The writer makes no progress while the process talks on."""
        process.poll()
        process.hung_until_s = self.now_s + for_s
        process.poll()
        self.at(process.hung_until_s, process.poll)

    def announce_end(self, process: Process, in_s: float) -> None:
        """A notice: the process will be killed, and tries to save before."""
        process.noticed(in_s)
        self.after(in_s, lambda: self.kill(process, back_after_s=5.0))

    # -- storage -------------------------------------------------------------------------------------------------

    def slow_down(self, share: float, for_s: float) -> None:
        """The storage does only a share of what it is asked for."""
        self.poll_all()
        self.storage_share = share
        self.poll_all()
        self.after(for_s, self._speed_up)

    def _speed_up(self) -> None:
        self.poll_all()
        self.storage_share = 1.0
        self.poll_all()

    # -- coordinator ---------------------------------------------------------------------------------------------

    def leader_for(self, process: Process) -> Leader:
        """Whom the process reaches: for a while after a fail-over, half of them still the deposed leader."""
        if self._deposed is not None and self.now_s < self._deposed[1] and process.attempt % 2 == 0:
            return self._deposed[0]
        return self.leader

    def reconfigure(self, config: PoolConfig) -> None:
        """What the next coordinator will be told about the pool."""
        self.config = config

    def suspend(self, for_s: float) -> None:
        """The coordinator's machine is suspended: commands wait, and its clock goes on."""
        self.leader.frozen_until_s = self.now_s + for_s

    def crash(self, down_s: float, *, memory: bool = True, kept_last: bool | None = None) -> None:
        """The coordinator dies, now or at its next commit (kept or not), and comes back on the same machine."""
        leader = self.leader
        if not leader.alive:
            return

        def come_back() -> None:
            if leader is not self.leader:
                return  # another one has taken over meanwhile
            grace_s = self.observer.longest_lease_s if not memory else leader.grace_left_s()
            if not memory:
                self.store.forget()
                self._forget({job.uid for job in self.jobs})
            self._lead(leader.clock_offset_s, grace_s=grace_s, memory=memory)

        self._come_back = lambda: self.after(down_s, come_back)
        leader.dies_at_commit = kept_last
        if kept_last is None:
            self.stopped(leader)

    def fail_over(
        self,
        after_s: float,
        *,
        clock_offset_s: float,
        known_within_s: float | None = None,
        num_lost: int = 0,
        deposed_for_s: float = 0.0,
    ) -> None:
        """Another machine takes over: another clock, perhaps lost commits, perhaps beside the old leader.

        A standby that watched the old leader knows how far apart the clocks are, up to `known_within_s`: no grace.
        """
        old = self.leader
        if not old.alive:
            return

        def take_over() -> None:
            if old is self.leader:
                self._forget(self.store.lose(num_lost))
                self._deposed = (old, self.now_s + deposed_for_s)
                self.network.hang_up_on_all(old, reset=self.rng.random() < 0.5)
                grace_s = self.observer.longest_lease_s
                if known_within_s is not None and not num_lost and not old.grace_left_s():
                    apart_s, grace_s = clock_offset_s - old.clock_offset_s, 0.0
                    self.store.moved(
                        ClockOffset(earlier_s=apart_s - known_within_s, later_s=apart_s + known_within_s)
                    )
                self._lead(clock_offset_s, grace_s=grace_s, memory=True)

        if deposed_for_s == 0.0:
            self._come_back = lambda: self.after(after_s, take_over)
            self.stopped(old)
        else:
            self.after(after_s, take_over)

    def stopped(self, leader: Leader) -> None:
        """The leader is no more, by a crash or since a newer one has claimed the pool."""
        leader.alive = False
        if leader is self.leader:
            self.network.hang_up_on_all(leader, reset=self.rng.random() < 0.5)
            self._come_back()

    def _lead(self, clock_offset_s: float, *, grace_s: float, memory: bool) -> None:
        self.observer.configured(self.now_s, self.config)
        self.leader = Leader(self, self.config, clock_offset_s=clock_offset_s)
        self.leader.begin(grace_s=grace_s, memory=memory)
        self.leader.hear(Tick())

    def _forget(self, uids: set[str]) -> None:
        """The next leader does not know what these were told: their safe rates are out of the bound for now."""
        for process in self.processes:
            if process.job.uid in uids:
                process.forgotten_by = self.store.epoch + 1

    # -- the end -------------------------------------------------------------------------------------------------

    def calm_down(self, duration_s: float) -> None:
        """No more faults; whatever is broken heals, and then everybody must get on."""
        self.faults = CALM
        for process in self.processes:
            process.cut_up_until_s = process.cut_down_until_s = 0.0
        if not self.leader.alive:
            self.run(200.0)
        self.reconfigure(replace(self.config, capacity_bytes_per_s=1000))
        self.crash(1.0)
        for job in self.jobs:
            self.revive(job)
        start_s = self.now_s
        self.run(duration_s)
        if self.violations:
            return
        for job in self.jobs:
            if self._healthy(job) and not any(at_s > start_s for at_s in job.saved_s):
                self.violated(f"job {job.uid[-2:]} has starved")

    def _healthy(self, job: Job) -> bool:
        return any(
            process.alive and not process.finishing for process in self.processes if process.job is job
        )
