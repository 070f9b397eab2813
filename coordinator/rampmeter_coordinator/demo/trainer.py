"""One training process of the demo, from its start to the end of the act. Runs in a child of the forkserver.

Everything it does goes into its history. It stops when the act is over, when it is told to, or when the demo has died,
and it never outlives any of them by more than one step and the save in flight.
"""

import logging
import random
import warnings
from multiprocessing.connection import Connection
from typing import Any

from rampmeter import Checkpointer, events
from rampmeter.core.clock import SystemClock
from rampmeter.core.pacer import PacerState
from rampmeter_coordinator.demo.history import (
    Allowed,
    Chunk,
    Committed,
    Digest,
    Ended,
    Failed,
    HistoryWriter,
    Loss,
    Queued,
    Restored,
    Saving,
    Stalled,
    Started,
)
from rampmeter_coordinator.demo.model import Training
from rampmeter_coordinator.demo.scenario import Go, Role, Scenario
from rampmeter_coordinator.demo.storage import SharedStorage
from rampmeter_coordinator.demo.unmetered import YoungCheckpointer
from rampmeter_coordinator.demo.writer import EmulatedStorageWriter, bound_to

_SHORTEST_STALL_S = 0.001
_CLOSE_LIMIT_S = 20.0


def run(control: Connection, role: Role, scenario: Scenario) -> None:
    """Train until the act ends: metered by the coordinator at the role's URL, or on its own where that is None."""
    warnings.filterwarnings("ignore", module="torch")
    logging.getLogger("rampmeter").setLevel(logging.ERROR)
    trainer = _Trainer(control, role, scenario)
    if role.url is None:
        trainer.run_unmetered()
    else:
        trainer.run_metered(role.url)


class _Trainer:
    def __init__(self, control: Connection, role: Role, scenario: Scenario) -> None:
        self._control = control
        self._role = role
        self._scenario = scenario
        self._clock = SystemClock()
        self._history = HistoryWriter(role.history)
        self._training = Training(role.job, scenario, self._clock)
        self._go = Go(start_s=0.0, end_s=0.0)
        self._step = 0

    # -- the acts ----------------------------------------------------------------------------------------------

    def run_unmetered(self) -> None:
        """Act 1."""
        checkpointer = YoungCheckpointer(
            self._role.root,
            self._training,
            mtbf_s=self._scenario.mtbf_s,
            writer_class=self._writer_class(),
            clock=self._clock,
            on_save=self._on_unmetered_save,
            on_commit=lambda step, write_s: self._note(Committed, step=step, write_s=write_s),
        )
        self._train_one()  # Adam has no moments before its first step, and the warm-up needs them
        checkpointer.warm_up()
        checkpointer.start(self._wait_for_go())
        while self._goes_on():
            self._train_one()
            stall_s = checkpointer.step(self._step)
            if stall_s is not None:
                self._note(Stalled, duration_s=stall_s)
        self._note(Ended)
        checkpointer.close()

    def run_metered(self, url: str) -> None:
        """Act 2: the loop of the README."""
        self._wait_for_go()
        with self._checkpointer(url) as ckpt:
            self._step = ckpt.restore(self._training.parts()) or 0
            self._note(Restored, step=self._step)
            while self._goes_on() and not ckpt.should_stop:
                self._train_one()
                before_s = self._clock.now()
                ckpt.step(self._step, self._snapshot)
                stall_s = self._clock.now() - before_s
                if stall_s > _SHORTEST_STALL_S:
                    self._note(Stalled, duration_s=stall_s)
            self._note(Ended)
            ckpt.close(_CLOSE_LIMIT_S)

    def _checkpointer(self, url: str) -> Checkpointer:
        scenario = self._scenario
        return Checkpointer(
            self._role.root,
            coordinator=url,
            job=self._role.job.name,
            num_gpus=scenario.num_gpus,
            mtbf_s=scenario.mtbf_s,
            interval_max_s=scenario.interval_max_s,
            keep=2,
            writer_class=self._writer_class(),
            on_event=self._on_event,
            seed=random.Random(f"{self._role.job.seed}/{self._role.life}").randrange(2**32),
        )

    # -- training ----------------------------------------------------------------------------------------------

    def _wait_for_go(self) -> float:
        """Say that we are ready, sleep until the common start, return it."""
        self._note(Started)
        self._go = self._control.recv()
        self._clock.sleep(max(0.0, self._go.start_s - self._clock.now()))
        return self._go.start_s

    def _goes_on(self) -> bool:
        """Anything on the control pipe, also its end, means stop."""
        is_over = self._clock.now() >= self._go.end_s and self._step >= self._go.least_step
        return not is_over and not self._control.poll()

    def _train_one(self) -> None:
        loss = self._training.train_one()
        self._step += 1
        self._note(Loss, step=self._step, loss=loss.hex())

    def _snapshot(self) -> dict[str, Any]:
        """The state, as the checkpointer asks for it: copied out of the emulated device first."""
        self._note(Digest, step=self._step, digest=self._training.copy_out())
        return self._training.parts()

    # -- history -----------------------------------------------------------------------------------------------

    def _note(self, kind: type, **fields: Any) -> None:
        at_s = fields.pop("at_s", None) or self._clock.now()
        self._history.write(kind(at_s=at_s, job=self._role.job.name, life=self._role.life, **fields))

    def _writer_class(self) -> type[EmulatedStorageWriter]:
        return bound_to(SharedStorage(self._role.storage), self._on_chunk)

    def _on_chunk(self, begin_s: float, end_s: float, num_bytes: int) -> None:
        self._note(Chunk, at_s=end_s, begin_s=begin_s, num_bytes=num_bytes)

    def _on_unmetered_save(self, step: int) -> None:
        self._note(Saving, step=step)

    def _on_event(self, event: events.Event) -> None:
        if isinstance(event, events.RateChanged):
            self._note(Allowed, at_s=event.now_s, bytes_per_s=event.bytes_per_s, until_s=event.until_s)
        elif isinstance(event, events.SaveStarted):
            self._note(Saving, at_s=event.now_s, step=event.step)
        elif isinstance(event, events.SaveEnded) and event.reason is None:
            self._note(Committed, at_s=event.now_s, step=event.step, write_s=event.write_s)
        elif isinstance(event, events.SaveEnded):
            self._note(Failed, at_s=event.now_s, step=event.step, reason=event.reason)
        elif isinstance(event, events.StateChanged) and event.state is PacerState.DUE:
            self._note(Queued, at_s=event.now_s)
