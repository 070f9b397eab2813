"""One attempt of a job: the agent's pacer and lease clock, driven by the world's time as the keeper drives them.

What it says and when is the pacer's; here is what happens between a grant and a release: the snapshot, the lead-in, the
bytes at the storage, the tail. A restore is the same conversation, for reading, with its first byte in hand.
"""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rampmeter.core.leaseclock import LeaseClock
from rampmeter.core.messages import (
    AnyAnswer,
    EndReason,
    Finish,
    Kind,
    Plan,
    RefusalReason,
    Request,
    SlotRequest,
)
from rampmeter.core.notice import GivenUp
from rampmeter.core.pacer import Action, Governance, Pacer, PacerState
from rampmeter_coordinator.model.commands import Refusal
from rampmeter_coordinator.sim import words
from rampmeter_coordinator.sim.storage import Stream
from rampmeter_coordinator.sim.training import Phase

if TYPE_CHECKING:
    from rampmeter_coordinator.sim.job import Job

OWN_PERIOD_S = 3600.0
BACKOFF_S = 1.0
PATIENCE_S = 10.0
PATIENCE_FOR_A_SLOT_S = 30.0
"""A client hangs up after these: the longest hold and 5 s."""


@dataclass(slots=True, kw_only=True)
class Transfer:
    """A save between its grant and its commit, or a restore between its grant and its last byte."""

    stream: Stream
    work_s: float
    begun_s: float
    stalled_until_s: float
    first_byte_s: float
    interval_s: float
    is_open: bool = False
    commit_s: float = math.inf
    is_over: bool = False
    is_aborted: bool = False


class Attempt:
    """`poll` whenever something may have changed."""

    def __init__(self, job: "Job", number: int, kind: Kind, plan: Plan | None) -> None:
        self.job, self.number, self.kind = job, number, kind
        self.wake_s = math.inf
        self.alive = True
        self.cut_off = False
        """Nothing that it says arrives, and no answer comes."""
        self.clock = LeaseClock()
        if plan is not None:
            self.clock.remember(plan, job.world.now_s)
        self.pacer = self._pacer(0.0 if kind is Kind.READ else job.rng.random())
        self.transfer: Transfer | None = None
        self.load_s: float | None = None
        self.restored_s = 0.0
        """How long its restore took, once it has ended, and the work that it brought back."""
        self.seq = self.ack = 0
        self.asked_s: float | None = None
        self.urgent_s: float | None = None
        self._request: Request | None = None
        self._action = Action.NOTHING
        self._sent_s = 0.0
        self._is_last = False
        self._given_up: GivenUp | None = None

    def _pacer(self, draw: float) -> Pacer:
        now_s = self.job.world.now_s
        return Pacer(self.clock, now_s=now_s, draw=draw, own_period_s=OWN_PERIOD_S, local=False)

    # -- time --------------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Time has passed, or something has happened: do what follows, and say when to come again."""
        if not self.alive:
            return
        now_s = self.job.world.now_s
        if self._is_last and self.pacer.state is PacerState.IDLE and now_s >= self.pacer.due_s:
            self.urgent_s = self.urgent_s or now_s
            self.pacer.hurry(now_s, deadline_at_s=now_s + words.DEADLINE_S)
        self._tick(now_s)
        if self._gives_up(now_s):
            return
        if self.pacer.wants_snapshot:
            self._begin(now_s)
        if self.transfer is not None:
            self._transfer(self.transfer, now_s)
        if self.alive:
            self._talk(now_s)
        if self.alive:
            self.job.world.wake(self, self._next_s(now_s))

    def _tick(self, now_s: float) -> None:
        """Let time pass for the pacer; a save that it has seen off is forgotten."""
        self.pacer.tick(now_s)
        if self.transfer is not None and self.transfer.is_over and self.pacer.state is PacerState.IDLE:
            self._released(now_s)

    def _gives_up(self, now_s: float) -> bool:
        """A save that is given up ends; True if its attempt, which was to end after it, ends too."""
        given_up = self.pacer.given_up
        if given_up is self._given_up:
            return False
        self._given_up = given_up
        if given_up is not None and given_up.left_s is not None:
            self.job.num_given_up += 1
            self._finish(failed=True)
            return True
        if self.transfer is not None and not self.transfer.is_over:
            self._abort(self.transfer, now_s)
        return False

    def _abort(self, transfer: Transfer, now_s: float) -> None:
        """The snapshot is thrown away; training goes on."""
        self.job.world.storages[self.kind].close(transfer.stream, now_s)
        if self.job.training.phase is Phase.STALLED:
            self.job.training.enter(Phase.RUNNING, now_s)
        transfer.is_over, transfer.is_aborted = True, True
        self.pacer.ended(now_s, committed=False)
        self._tick(now_s)

    def _next_s(self, now_s: float) -> float:
        wake_s = self.pacer.wake_at(now_s)
        if self._request is not None:
            wake_s = min(wake_s, self._sent_s + self._patience_s())
        if self.transfer is not None:
            save = self.transfer
            for time_s in (save.stalled_until_s, save.first_byte_s, save.commit_s):
                if now_s < time_s < wake_s:
                    wake_s = time_s
        return wake_s

    def die(self) -> None:
        """The process ends without a word; its connections are closed."""
        now_s, world = self.job.world.now_s, self.job.world
        self.alive = False
        if self.transfer is not None:
            world.storages[self.kind].close(self.transfer.stream, now_s)
        if self._request is not None:
            world.hang_up(self._request)

    # -- between grant and release -----------------------------------------------------------------------------

    def _begin(self, now_s: float) -> None:
        spec, training = self.job.spec, self.job.training
        training.advance(now_s)
        is_save = self.kind is Kind.WRITE
        self.pacer.begin_snapshot(now_s)
        self.asked_s = now_s if self.asked_s is None else self.asked_s  # a silent coordinator is not asked
        plan = self.clock.plan
        self.transfer = Transfer(
            stream=Stream(
                num_bytes=float(spec.num_bytes),
                pipe_bytes_per_s=math.inf if spec.pipe_bytes_per_s is None else spec.pipe_bytes_per_s,
                cpu_bytes_per_s=spec.cpu_bytes_per_s if is_save else math.inf,
                on_end=self._last_byte,
            ),
            work_s=training.work_s,
            begun_s=now_s,
            stalled_until_s=now_s + (spec.stall_s if is_save else 0.0),
            first_byte_s=now_s + (max(spec.lead_s, spec.stall_s) if is_save else 0.0),
            interval_s=plan.interval_s if plan else OWN_PERIOD_S,
        )
        if is_save and spec.stall_s > 0.0:
            training.enter(Phase.STALLED, now_s)

    def _transfer(self, transfer: Transfer, now_s: float) -> None:
        training = self.job.training
        if training.phase is Phase.STALLED and now_s >= transfer.stalled_until_s:
            training.enter(Phase.RUNNING, now_s)
        storage = self.job.world.storages[self.kind]
        if not transfer.is_open and now_s >= transfer.first_byte_s:
            transfer.is_open = True
            storage.open(transfer.stream, now_s)
            self.pacer.first_byte_in_hand()
        if now_s >= transfer.commit_s and not transfer.is_over:
            self._committed(transfer, now_s)
        elif transfer.is_open:
            storage.allow(transfer.stream, self._allowed(now_s), now_s)

    def _allowed(self, now_s: float) -> float:
        if self.pacer.governance is Governance.UNGOVERNED:
            return math.inf
        return self.clock.allowance(now_s).bytes_per_s

    def _last_byte(self) -> None:
        if self.transfer is None or not self.alive:
            return
        now_s = self.job.world.now_s
        self.transfer.commit_s = now_s
        if self.kind is Kind.WRITE:
            self.transfer.commit_s += self.job.spec.tail_s
            self.job.training.slowed(self.job.slow_down_s, now_s)
        self.poll()

    def _committed(self, transfer: Transfer, now_s: float) -> None:
        if self.kind is Kind.READ:
            self.job.trains()
        else:
            self.job.saved(self, transfer, now_s)
        transfer.is_over = True
        self.pacer.ended(now_s, committed=True)
        self.asked_s = None
        self._tick(now_s)

    # -- conversation ------------------------------------------------------------------------------------------

    def _talk(self, now_s: float) -> None:
        if self._request is not None:
            if now_s >= self._sent_s + self._patience_s():
                self._not_answered(now_s)
            elif not self._is_pressing(self.pacer.next_action(now_s)):
                return
        action = self.pacer.next_action(now_s)
        if action is not Action.NOTHING:
            self._say(action, now_s)

    def _patience_s(self) -> float:
        return PATIENCE_FOR_A_SLOT_S if self._action is Action.ASK else PATIENCE_S

    def _is_pressing(self, action: Action) -> bool:
        """Worth dropping the request in flight for: it says more than that does."""
        if isinstance(self._request, SlotRequest) and self.urgent_s is not None and not self._request.urgent:
            return True
        return action is not self._action and action in (Action.READY, Action.RELEASE, Action.ASK)

    def _not_answered(self, now_s: float) -> None:
        assert self._request is not None
        self.job.world.hang_up(self._request)
        self._request = None
        self.pacer.unreachable(now_s, BACKOFF_S)

    def _say(self, action: Action, now_s: float) -> None:
        if self._request is not None:
            self.job.world.hang_up(self._request)
        if action is Action.ASK:
            self.asked_s = now_s if self.asked_s is None else self.asked_s
            self.pacer.asked()
        self.seq += 1
        self._request, self._action, self._sent_s = words.word(self, action, now_s), action, now_s
        if not self.cut_off:
            self.job.world.send(self, self._request)

    def hear(self, seq: int, body: AnyAnswer | Refusal) -> None:
        """The answer to request `seq`."""
        if not self.alive or self.cut_off or self._request is None or self._request.seq != seq:
            return
        now_s, self._request = self.job.world.now_s, None
        if isinstance(body, Refusal):
            self._refused(body, now_s)
        else:
            self.ack = seq
            self.pacer.answered(self._stretched(body), self._sent_s, now_s)
            self.pacer.said(self._action, now_s)
        self.poll()

    def _stretched(self, body: AnyAnswer) -> AnyAnswer:
        if body.plan is None or self.job.heartbeat_s is None:
            return body
        return replace(body, plan=replace(body.plan, heartbeat_s=self.job.heartbeat_s))

    def _refused(self, refusal: Refusal, now_s: float) -> None:
        if refusal.reason is RefusalReason.UNKNOWN_JOB:
            self.pacer.forgotten()
        elif refusal.reason in (RefusalReason.SUPERSEDED, RefusalReason.OLD_SEQ):
            self.pacer.unreachable(now_s, BACKOFF_S)
        else:
            raise AssertionError(f"job {self.job.spec.uid}: the ledger refused: {refusal.detail}")

    def _released(self, now_s: float) -> None:
        self.transfer = None
        if self.urgent_s is not None:
            self._finish(failed=False)
        elif self.kind is Kind.READ:
            self.kind = Kind.WRITE
            self.pacer = self._pacer(self.job.rng.random())
            self.pacer.said(Action.REGISTER, now_s)
        self._is_last = self.job.rng.random() < self.job.spec.share_preempted

    def _finish(self, *, failed: bool) -> None:
        """The save before a preemption is done, or given up (`failed`): goodbye."""
        self.seq += 1
        finish = Finish(**words.envelope(self), reason=EndReason.PREEMPTED)
        self.job.world.send(self, finish)
        self.job.end(failed=failed)
