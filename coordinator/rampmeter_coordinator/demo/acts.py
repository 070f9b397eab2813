"""Plays an act: starts its jobs in the same second, follows their histories, lets incidents happen, sees them out.

Knows nothing of figures or screens: whoever shows an act is told several times a second what is known of it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from rampmeter.core.clock import SystemClock
from rampmeter_coordinator.demo import plays
from rampmeter_coordinator.demo.errors import DemoFailed
from rampmeter_coordinator.demo.figures import Act, Restore
from rampmeter_coordinator.demo.history import (
    CoordinatorBack,
    CoordinatorKilled,
    HistoryReader,
    HistoryWriter,
    Killed,
    Loss,
    Record,
    Started,
)
from rampmeter_coordinator.demo.incidents import Incidents
from rampmeter_coordinator.demo.scenario import Go, JobSpec, Role, Scenario
from rampmeter_coordinator.demo.service import Service
from rampmeter_coordinator.demo.troupe import Actor, Troupe

_READY_LIMIT_S = 90.0
_END_LIMIT_S = 30.0
_POLL_S = 0.1
_LEAD_IN_S = 0.3

OnTick = Callable[["Stage", float], None]
"""Told what is known so far, and the time."""


@dataclass(slots=True, kw_only=True)
class Stage:
    """What is known of the act that is being played. begin_s is 0 until all jobs are ready."""

    metered: bool
    begin_s: float = 0.0
    end_s: float = 0.0
    records: list[Record] = field(default_factory=list)


class Director:
    """Plays acts in `directory`, all on one emulated storage. `on_tick` is called several times a second."""

    def __init__(
        self, troupe: Troupe, scenario: Scenario, directory: Path, storage: Path, on_tick: OnTick
    ) -> None:
        self.troupe = troupe
        self.scenario = scenario
        self.directory = directory
        self.storage = storage
        self.on_tick = on_tick

    def herd(self) -> Act:
        """Act 1: every job on its own Young interval."""
        return _Performance(self, None, Incidents()).play()

    def metered(self, service: Service, *, kill_coordinator: bool) -> Act:
        """Act 2: the same jobs, metered; one of them is killed and starts again, on wish the coordinator too."""
        return _Performance(
            self,
            service,
            Incidents(victim=self.victim, with_coordinator=kill_coordinator, scenario=self.scenario),
        ).play()

    @property
    def victim(self) -> str:
        """The job that is killed in act 2."""
        return self.scenario.jobs[2].name

    def check_all(self) -> list[Restore]:
        """The newest checkpoint of every job of act 2 as a fresh process restores it."""
        actors = {job.name: self._checker(job) for job in self.scenario.jobs}
        return [self._restore(name, actor) for name, actor in actors.items()]

    def _checker(self, job: JobSpec) -> Actor:
        log = self.directory / f"check-{job.name}.log"
        return self.troupe.start(plays.check, log, job, self.root(job, metered=True), self.scenario)

    def _restore(self, name: str, actor: Actor) -> Restore:
        if not actor.control.poll(_END_LIMIT_S):
            raise DemoFailed(f"restoring {name} took longer than {_END_LIMIT_S:g} s")
        try:
            step, digest = actor.control.recv()
        except EOFError:
            self.troupe.join(actor, _END_LIMIT_S)
            raise DemoFailed(f"restoring {name} sent no answer") from None
        return Restore(job=name, step=step, digest=digest)

    def root(self, job: JobSpec, *, metered: bool) -> Path:
        """Where the job's checkpoints of an act are."""
        return self.directory / ("metered" if metered else "herd") / job.name


class _Performance:
    """One act while it is played."""

    def __init__(self, director: Director, service: Service | None, incidents: Incidents) -> None:
        self._director = director
        self._stage = Stage(metered=service is not None)
        self._service = service
        self._incidents = incidents
        self._actors: dict[str, Actor] = {}
        self._histories = director.directory / ("history-metered" if self._stage.metered else "history-herd")
        self._histories.mkdir()
        self._reader = HistoryReader(self._histories)
        self._own = HistoryWriter(self._histories / "demo.jsonl")
        self._clock = SystemClock()
        self._scenario = director.scenario

    def play(self) -> Act:
        for job in self._scenario.jobs:
            self._start(job, life=1)
        self._until(
            lambda: self._num_ready() == len(self._scenario.jobs), _READY_LIMIT_S, "jobs to get ready"
        )
        self._stage.begin_s = self._clock.now() + _LEAD_IN_S
        self._stage.end_s = self._stage.begin_s + self._scenario.act_s
        for actor in self._actors.values():
            actor.control.send(self._go())
        self._until(self._is_over, self._scenario.act_s + _END_LIMIT_S, "jobs to end")
        for actor in self._actors.values():
            self._director.troupe.join(actor, _END_LIMIT_S)
        self._look()
        self._own.close()
        stage = self._stage
        return Act(
            metered=stage.metered, begin_s=stage.begin_s, end_s=stage.end_s, records=list(stage.records)
        )

    def _go(self) -> Go:
        return Go(start_s=self._stage.begin_s, end_s=self._stage.end_s)

    def _start(self, job: JobSpec, life: int) -> None:
        root = self._director.root(job, metered=self._stage.metered)
        root.mkdir(parents=True, exist_ok=True)
        role = Role(
            job=job,
            life=life,
            root=root,
            history=self._histories / f"{job.name}.{life}.jsonl",
            storage=self._director.storage,
            url=None if self._service is None else self._service.url,
        )
        log = role.history.with_suffix(".log")
        self._actors[job.name] = self._director.troupe.start(plays.train, log, role, self._scenario)

    def _num_ready(self) -> int:
        return sum(isinstance(record, Started) for record in self._stage.records)

    def _is_over(self) -> bool:
        self._let_happen()
        return all(actor.process.exitcode is not None for actor in self._actors.values())

    def _until(self, condition: Callable[[], bool], limit_s: float, what: str) -> None:
        limit_at_s = self._clock.now() + limit_s
        while not condition():
            if self._clock.now() > limit_at_s:
                raise DemoFailed(f"waited {limit_s:g} s for the {what}")
            self._look()
            self._clock.sleep(_POLL_S)

    def _look(self) -> None:
        self._stage.records += self._reader.new_records()
        for actor in self._actors.values():
            self._director.troupe.check(actor)
        self._director.on_tick(self._stage, self._clock.now())

    # -- incidents ---------------------------------------------------------------------------------------------

    def _let_happen(self) -> None:
        elapsed = (self._clock.now() - self._stage.begin_s) / self._scenario.act_s
        if self._incidents.kills_job(self._stage.records, elapsed):
            self._kill_job()
        if self._incidents.kills_coordinator(self._stage.records, elapsed):
            self._kill_coordinator()

    def _kill_job(self) -> None:
        """SIGKILL, and the next life at once, as a supervisor would."""
        name = self._incidents.victim
        self._director.troupe.kill(self._actors[name])
        self._own.write(Killed(at_s=self._clock.now(), job=name, life=1))
        job = next(job for job in self._scenario.jobs if job.name == name)
        trained = max(r.step for r in self._stage.records if isinstance(r, Loss) and r.job == name)
        self._start(job, life=2)
        self._actors[name].control.send(replace(self._go(), least_step=trained + 1))

    def _kill_coordinator(self) -> None:
        assert self._service is not None
        self._service.kill()
        self._own.write(CoordinatorKilled(at_s=self._clock.now(), job="coordinator", life=1))
        self._look()
        self._service.start_again()
        self._own.write(CoordinatorBack(at_s=self._clock.now(), job="coordinator", life=2))
