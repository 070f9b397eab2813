"""The network of the adversarial world: it delays, loses, doubles, reorders and cuts. It never changes what is said."""

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from invariants.process import Process
from rampmeter.core.messages import AnyAnswer, Request
from rampmeter_coordinator.model.commands import Disconnected, Refusal, Reply

if TYPE_CHECKING:
    from invariants.leader import Leader
    from invariants.world import World

REMEMBERED = 64
"""So many requests are kept to be said again much later."""

Key = tuple[str, int, int]


class Network:
    """Between processes and leaders. `world.faults` says how bad it is at the moment."""

    def __init__(self, world: "World", rng: random.Random) -> None:
        self._world, self._rng = world, rng
        self._open: dict[Key, Process] = {}
        self.said: deque[Request] = deque(maxlen=REMEMBERED)

    # -- to the coordinator --------------------------------------------------------------------------------------

    def send(self, process: Process, request: Request) -> None:
        """Carry a request to the coordinator: late, lost or twice."""
        self._open[request.job_uid, request.attempt, request.seq] = process
        self.said.append(request)
        if self._gets_through(process.cut_up_until_s):
            self._later(lambda: self._arrive(process, request))
        if self._rng.random() < self._world.faults.duplicates:
            self.copy(request, self._rng.uniform(0.0, self._world.faults.late_s))

    def copy(self, request: Request, late_s: float) -> None:
        """The same words arrive once more, after `late_s`, from nobody in particular."""
        self._world.at(self._world.now_s + late_s, lambda: self._world.leader.hear_copy(request))

    def hang_up(self, process: Process, request: Request) -> None:
        """The client waits no more for this answer; the coordinator mostly hears of it."""
        key = (request.job_uid, request.attempt, request.seq)
        self._open.pop(key, None)
        if self._gets_through(process.cut_up_until_s):
            self._later(lambda: self._hung_up(key))

    def _hung_up(self, key: Key) -> None:
        if key not in self._open:
            uid, attempt, seq = key
            self._world.leader.hear(Disconnected(job_uid=uid, attempt=attempt, seq=seq))

    def _arrive(self, process: Process, request: Request) -> None:
        leader = self._world.leader_for(process)
        if leader.alive:
            leader.hear(request)
        if not leader.alive:
            self.unreachable(request, leader.epoch)

    # -- from the coordinator ------------------------------------------------------------------------------------

    def reply(self, reply: Reply, epoch: int) -> None:
        """Carry an answer of the leader with this epoch to whoever waits for it."""
        process = self._open.get((reply.job_uid, reply.attempt, reply.seq))
        if process is not None:
            self._carry_back(process, reply.seq, reply.body, epoch)

    def unreachable(self, request: Request, epoch: int) -> None:
        """Nobody listens there: the client is told so."""
        process = self._open.get((request.job_uid, request.attempt, request.seq))
        if process is not None:
            self._carry_back(process, request.seq, None, epoch)

    def hang_up_on_all(self, leader: "Leader", *, reset: bool) -> None:
        """The leader is no more: nobody gets an answer of it; clients hear of that only if connections are reset."""
        waiting, self._open = self._open, {}
        for (_, _, seq), process in waiting.items() if reset else ():
            self._carry_back(process, seq, None, leader.epoch)

    def _carry_back(self, process: Process, seq: int, body: AnyAnswer | Refusal | None, epoch: int) -> None:
        if self._gets_through(process.cut_down_until_s):
            self._later(lambda: self._heard(process, seq, body, epoch))

    def _heard(self, process: Process, seq: int, body: AnyAnswer | Refusal | None, epoch: int) -> None:
        if self._world.now_s < process.frozen_until_s:
            self._world.at(process.frozen_until_s, lambda: self._heard(process, seq, body, epoch))
        elif process.hear(seq, body) and epoch >= process.forgotten_by:
            process.forgotten_by = 0

    # -- how bad it is -------------------------------------------------------------------------------------------

    def _gets_through(self, cut_until_s: float) -> bool:
        return self._world.now_s >= cut_until_s and self._rng.random() >= self._world.faults.loss

    def _later(self, happen: Callable[[], None]) -> None:
        longest_s = self._world.faults.delay_s
        slow = self._rng.random() < 0.2
        delay_s = self._rng.uniform(0.0, longest_s if slow else min(0.1, longest_s))
        self._world.at(self._world.now_s + delay_s, happen)
