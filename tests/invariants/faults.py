"""What goes wrong at random in the adversarial world, how often, and how bad it is."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from invariants.process import Process
from rampmeter_coordinator.model.pool import PoolConfig

if TYPE_CHECKING:
    from invariants.world import World


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
    restores: float = 1 / 900
    hangs: float = 1 / 900
    notices: float = 1 / 900
    slow_storage: float = 1 / 600
    suspends: float = 1 / 600
    restarts: float = 1 / 200
    forget: float = 0.2
    """Share of restarts without memory; as many again lose their newest commits, or come with another clock."""
    shrink: float = 0.3
    retune: float = 0.0
    """Share of restarts with other lease times."""


CALM = Faults(
    loss=0,
    duplicates=0,
    delay_s=0.05,
    partitions=0,
    freezes=0,
    deaths=0,
    zombies=0,
    finishes=0,
    restores=0,
    hangs=0,
    notices=0,
    slow_storage=0,
    suspends=0,
    restarts=0,
)


class Weather:
    """Calls the world's verbs at random times until the world is calm."""

    def __init__(self, world: "World") -> None:
        self._world, self._rng = world, world.rng

    def begin(self) -> None:
        """Arrange the first of everything that may happen."""
        faults, jobs = self._world.faults, len(self._world.jobs) / 4
        happenings = {
            self._partition: faults.partitions * jobs,
            self._freeze: faults.freezes * jobs,
            self._die: faults.deaths,
            self._zombie: faults.zombies,
            self._finish: faults.finishes,
            self._restore: faults.restores,
            self._hang: faults.hangs,
            self._notice: faults.notices,
            self._slow_down: faults.slow_storage,
            self._suspend: faults.suspends,
            self._restart: faults.restarts,
        }
        for happen, rate in happenings.items():
            if rate:
                self._again_and_again(happen, rate)

    def _again_and_again(self, happen: Callable[[], None], rate: float) -> None:
        def once() -> None:
            if self._world.faults is not CALM:
                happen()
                self._world.at(self._world.now_s + self._rng.expovariate(rate), once)

        self._world.at(self._world.now_s + self._rng.expovariate(rate), once)

    def _pick(self) -> Process:
        living = [process for process in self._world.processes if process.alive]
        return self._rng.choice(living or self._world.processes)

    # -- to processes --------------------------------------------------------------------------------------------

    def _partition(self) -> None:
        everybody = self._rng.random() < 0.15
        for_s = self._rng.choice([5.0, 20.0, 60.0, 120.0, 240.0]) * self._rng.uniform(0.5, 1.5)
        way = self._rng.choice(["up", "down", "both"])
        self._world.cut(self._world.processes if everybody else [self._pick()], way, for_s)

    def _freeze(self) -> None:
        self._world.freeze(self._pick(), self._rng.uniform(1.0, 150.0))

    def _die(self) -> None:
        self._world.kill(self._pick(), back_after_s=self._rng.uniform(1.0, 120.0))

    def _zombie(self) -> None:
        cut_for_s = self._rng.uniform(30.0, 400.0) if self._rng.random() < 0.7 else 0.0
        self._world.start_beside(self._pick(), cut_for_s)

    def _finish(self) -> None:
        self._world.finish(self._pick(), back_after_s=self._rng.uniform(20.0, 200.0))

    def _restore(self) -> None:
        self._world.kill(self._pick(), back_after_s=self._rng.uniform(1.0, 120.0), restore=True)

    def _hang(self) -> None:
        self._world.hang(self._pick(), self._rng.uniform(5.0, 200.0))

    def _notice(self) -> None:
        self._world.announce_end(self._pick(), self._rng.uniform(20.0, 120.0))

    # -- to the storage and the coordinator ----------------------------------------------------------------------

    def _slow_down(self) -> None:
        self._world.slow_down(self._rng.choice([0.0, 0.05, 0.3, 0.7]), self._rng.uniform(5.0, 120.0))

    def _suspend(self) -> None:
        self._world.suspend(self._rng.choice([0.5, 5.0, 40.0, 100.0]) * self._rng.uniform(0.5, 1.5))

    def _restart(self) -> None:
        down_s = self._rng.choice([0.3, 3.0, 40.0, 120.0]) * self._rng.uniform(0.5, 1.5)
        self._world.reconfigure(self._config())
        number, forget = self._rng.random(), self._world.faults.forget
        if number < forget:
            self._world.crash(down_s, memory=False)
        elif number < 2 * forget:
            self._world.fail_over(
                down_s,
                clock_offset_s=self._rng.uniform(-900.0, 10_000.0),
                known_within_s=self._rng.choice([None, 0.01, 0.5]),
                num_lost=self._rng.choice([0, self._rng.randint(0, 20)]),
                deposed_for_s=self._rng.choice([0.0, 20.0]),
            )
        else:
            self._world.crash(down_s, kept_last=self._rng.choice([None, True, False]))

    def _config(self) -> PoolConfig:
        config = replace(self._world.config, capacity_bytes_per_s=1000)
        if self._rng.random() < self._world.faults.shrink:
            config = replace(config, capacity_bytes_per_s=self._rng.randint(50, 1000))
        if self._rng.random() < self._world.faults.retune:
            config = replace(config, ttl_s=self._rng.choice([20.0, 30.0, 45.0, 60.0]))
        return config
