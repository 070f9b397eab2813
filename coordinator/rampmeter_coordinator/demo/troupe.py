"""The demo's processes: training jobs, forked from one server that has imported torch once.

Owns every process that it starts and ends them by pid, whatever happens: nothing outlives the `with` block.
"""

import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rampmeter.core.clock import SystemClock
from rampmeter_coordinator.demo.errors import DemoFailed
from rampmeter_coordinator.demo.plays import PRELOADED

_END_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """One process and the pipe that tells it what to do. `log` is where it writes what nobody expected."""

    process: ForkServerProcess
    control: Connection
    log: Path


class Troupe:
    """Starts processes; use in a `with` block."""

    def __init__(self) -> None:
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(PRELOADED))
        self._actors: list[Actor] = []
        self._clock = SystemClock()

    def __enter__(self) -> Self:
        forkserver.ensure_running()  # it imports torch while others get ready
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for actor in self._actors:
            actor.control.close()  # whoever still trains leaves its loop
        limit_at_s = self._clock.now() + _END_LIMIT_S
        for actor in self._actors:
            if actor.process.is_alive():
                actor.process.join(max(0.0, limit_at_s - self._clock.now()))
            if actor.process.is_alive():
                self.kill(actor)

    def start(self, play: Callable[..., None], log: Path, *arguments: Any) -> Actor:
        """Run `play(control, log, *arguments)` in a process of its own."""
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=play, args=(theirs, log, *arguments), daemon=True)
        process.start()
        theirs.close()
        actor = Actor(process=process, control=ours, log=log)
        self._actors.append(actor)
        return actor

    def kill(self, actor: Actor) -> None:
        """SIGKILL, and wait until it is dead."""
        actor.process.kill()
        actor.process.join()

    def check(self, actor: Actor) -> None:
        """DemoFailed if the process ended with an error."""
        code = actor.process.exitcode
        if code:
            said = actor.log.read_text(errors="replace") if actor.log.exists() else ""
            raise DemoFailed(f"process {actor.process.pid} ended with {code}:\n{said[-2000:]}")

    def join(self, actor: Actor, limit_s: float) -> None:
        """Wait for its end. DemoFailed if there is none within `limit_s`, or an unhappy one."""
        actor.process.join(limit_s)
        if actor.process.exitcode is None:
            raise DemoFailed(f"process {actor.process.pid} did not end within {limit_s:g} s")
        self.check(actor)
