"""A training job of the world: trains, fails, comes back as a new attempt, restores and goes on.

Failures are exponential in the time that training is up, drawn per job, so that two policies or loads see the same ones
(common random numbers). The conversation with the coordinator is `attempt`'s.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from rampmeter.core.messages import Kind
from rampmeter.core.pacer import Governance
from rampmeter_coordinator.sim.attempt import Attempt, Transfer
from rampmeter_coordinator.sim.training import Phase, Training
from rampmeter_coordinator.sim.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One job. What it is in truth; what it tells the coordinator is the same where it is told at all.

    stall_s             training stands still for a snapshot
    lead_s              from the grant to the first byte in hand; the stall is part of it
    tail_s              from the last byte to the commit
    mtbf_s, restart_s   mean time between failures; from a failure to the next attempt, without the read
    pipe_bytes_per_s    what its hosts can send at most: told
    cpu_bytes_per_s     what its CPUs can hash at most: not told
    eps                 what a flush costs training, as a share of the time that its bytes take alone: a writer that
                        sleeps in its bucket disturbs nobody
    interval_max_s      the user wishes to save at least this often; None = no wish
    share_preempted     how many of its saves are the last of an attempt: urgent, with a deadline
    """

    uid: str
    num_gpus: int
    num_bytes: int
    stall_s: float
    mtbf_s: float = math.inf
    restart_s: float = 0.0
    lead_s: float = 0.0
    tail_s: float = 0.0
    pipe_bytes_per_s: int | None = None
    cpu_bytes_per_s: float = math.inf
    eps: float = 0.0
    interval_max_s: float | None = None
    share_preempted: float = 0.0

    def alone_s(self, budget_bytes_per_s: float) -> float:
        """How long its bytes take where nobody else is."""
        pipe = math.inf if self.pipe_bytes_per_s is None else self.pipe_bytes_per_s
        return self.num_bytes / min(pipe, self.cpu_bytes_per_s, budget_bytes_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """A save that became durable. Times are readings of the world's clock.

    asked_s     when a slot was first asked for; granted_s when the snapshot was taken
    age_s       work that was not durable at the snapshot
    interval_s  what the plan said at that time
    urgent_s    when a notice came; None without one
    governed    it was written under a lease at its end
    """

    uid: str
    asked_s: float
    granted_s: float
    committed_s: float
    age_s: float
    interval_s: float
    urgent_s: float | None
    governed: bool


class Job:
    """`start` it, then the world's time does the rest."""

    def __init__(
        self,
        world: World,
        spec: JobSpec,
        seed: int,
        *,
        heartbeat_s: float | None = None,
        on_save: Callable[[Save], None] | None = None,
    ) -> None:
        """`heartbeat_s`: call less often than the plan says, to save computing; below 29 s nobody counts as silent."""
        self.world, self.spec = world, spec
        self.heartbeat_s, self.on_save = heartbeat_s, on_save
        self.rng = random.Random(f"{seed}/{spec.uid}")
        self.training = Training(mtbf_s=spec.mtbf_s, now_s=world.now_s)
        self.attempt: Attempt | None = None
        self.num_attempts = self.num_given_up = 0
        """Attempts so far; saves before a preemption that were not written, because they would not have fitted."""
        self.slow_down_s = spec.eps * spec.alone_s(world.config.budget_bytes_per_s)
        self._restoring_since_s = 0.0
        self._failures = random.Random(f"{seed}/{spec.uid}/failures")

    def start(self) -> None:
        """A new attempt; a later one restores first, if anything was ever saved."""
        self.num_attempts += 1
        plan = self.attempt.clock.plan if self.attempt else None
        kind = Kind.READ if self.training.durable_s > 0.0 else Kind.WRITE
        if kind is Kind.READ:
            self._restoring_since_s = self.world.now_s
            self.training.enter(Phase.RESTORING, self.world.now_s)
        self.attempt = Attempt(self, self.num_attempts, kind, plan)
        if kind is Kind.WRITE:
            self.trains()
        self.attempt.poll()

    def trains(self) -> None:
        """The state is there: training runs, until it fails."""
        now_s, attempt = self.world.now_s, self.attempt
        if self.training.phase is Phase.RESTORING:
            alone_s = self.spec.alone_s(self.world.config.budget_bytes_per_s)
            load_s = now_s - self._restoring_since_s
            self.training.restored(load_s - alone_s)
            assert attempt is not None
            attempt.load_s, attempt.restored_s = load_s, self.training.work_s
        self.training.enter(Phase.RUNNING, now_s)
        if self.spec.mtbf_s < math.inf:
            up_s = self._failures.expovariate(1.0 / self.spec.mtbf_s)
            self.world.at(now_s + up_s, lambda: self._fail(attempt))

    def _fail(self, attempt: Attempt | None) -> None:
        if attempt is self.attempt and self.training.is_up:
            self.end(failed=True)

    def end(self, *, failed: bool) -> None:
        """The attempt is over, by a failure or by a preemption; the next one follows."""
        assert self.attempt is not None
        self.attempt.die()
        self.training.fall_back(self.world.now_s, failed=failed)
        self.world.at(self.world.now_s + self.spec.restart_s, self.start)

    def saved(self, attempt: Attempt, transfer: Transfer, now_s: float) -> None:
        """A save is durable."""
        age_s = transfer.work_s - self.training.durable_s
        self.training.advance(now_s)
        self.training.saved(transfer.work_s)
        if self.on_save is not None:
            assert attempt.asked_s is not None
            save = Save(
                uid=self.spec.uid,
                asked_s=attempt.asked_s,
                granted_s=transfer.begun_s,
                committed_s=now_s,
                age_s=age_s,
                interval_s=transfer.interval_s,
                urgent_s=attempt.urgent_s,
                governed=attempt.pacer.governance is Governance.LEASE,
            )
            self.on_save(save)

    def hang(self) -> None:
        """Its writer makes no progress from now on, if it is writing."""
        if self.attempt is not None and self.attempt.transfer is not None:
            storage = self.world.storages[self.attempt.kind]
            storage.hang(self.attempt.transfer.stream, self.world.now_s)
