"""The one entry point of a pool's decisions: a command goes in at `now_s`, replies and changes come out.

Decides the order of things for every command: time first, then who speaks (attempt, seq), then what is confirmed, then
the request itself, then what it means for the others. Reads no clock, does no I/O; the same code runs in production, in
tests and in the simulator. A refused request changes nothing.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from rampmeter.core.messages import (
    Fence,
    Finish,
    GoneReason,
    Heartbeat,
    LeaseState,
    Noted,
    Outcome,
    Ready,
    RefusalReason,
    Register,
    Release,
    Renew,
    Request,
    SlotRequest,
)
from rampmeter_coordinator.model import counting, validating
from rampmeter_coordinator.model.answering import Answering
from rampmeter_coordinator.model.attempts import UNHEARD_AFTER_S
from rampmeter_coordinator.model.commands import Changes, Command, Disconnected, Priced, Refusal, Reply
from rampmeter_coordinator.model.holding import Holding
from rampmeter_coordinator.model.leasing import Leasing
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.model.pricing import Question
from rampmeter_coordinator.model.rates import Rates
from rampmeter_coordinator.model.records import Job, turn_of
from rampmeter_coordinator.model.registry import Registry, stale
from rampmeter_coordinator.model.state import PoolState
from rampmeter_coordinator.model.viewing import Viewing
from rampmeter_coordinator.model.views import JobView, LeaseView, PoolView, TimelineRow, Totals

NUM_PLAIN_ANSWERS = 1 << 16
"""Heartbeats of two weeks have no higher numbers."""

_SPEAKS_OF_A_LEASE = (Ready, Renew, Release)
_SUPERSEDED = Refusal(
    reason=RefusalReason.SUPERSEDED,
    status=409,
    detail="a newer request of this job came while this one was held",
)


class Ledger:
    """One pool. `grace_until_s` > 0: until then only holders are served."""

    def __init__(self, state: PoolState) -> None:
        self._state = state
        self._registry = Registry(state)
        rates = Rates(state)
        answering = Answering(state, self._registry, rates)
        self._holding = Holding(state, rates, answering)
        self._leasing = Leasing(state, rates, answering, self._holding)
        self._viewing = Viewing(state, rates)
        self._refreshed = not state.jobs
        self._handlers: Mapping[type, Callable[[Job, Any, float], None]] = {
            Register: self._register,
            Heartbeat: self._heartbeat,
            SlotRequest: self._leasing.ask,
            Ready: self._leasing.ready,
            Renew: self._leasing.renew,
            Release: self._release,
            Finish: self._finish,
        }

    @classmethod
    def new(cls, config: PoolConfig, *, epoch: int, seed: int, grace_until_s: float) -> "Ledger":
        """A pool without memory."""
        return cls(PoolState(config, epoch=epoch, seed=seed, grace_until_s=grace_until_s))

    @classmethod
    def load(
        cls,
        config: PoolConfig,
        *,
        epoch: int,
        seed: int,
        records: Mapping[str, bytes],
        meta: bytes,
        grace_until_s: float,
    ) -> "Ledger":
        """A pool as a store kept it. With grace its times are of another boot, else they go on."""
        state = PoolState(config, epoch=epoch, seed=seed, grace_until_s=grace_until_s)
        state.restore(records, meta)
        return cls(state)

    def apply(self, command: Command, now_s: float) -> tuple[Reply, ...]:
        """Decide. A request without a reply among the returned ones is held; a later call answers it."""
        if not self._refreshed or self._state.time_has_come(now_s):
            self._time_passes(now_s)
        if isinstance(command, Request):
            refusal = self._request(command, now_s)
            if refusal is not None:
                self._state.refuse(command, refusal)
        elif isinstance(command, Disconnected):
            self._disconnected(command)
        elif isinstance(command, Priced):
            self._registry.priced(command, now_s)
        self._leasing.rebalance(now_s)
        return self._state.take_replies()

    def take_question(self, now_s: float) -> Question | None:
        """For which price plans should be made, if it is time to ask: the answer is a command like any other.

        Nothing that is decided depends on when this is called, but for the answer.
        """
        return self._registry.take_question(now_s)

    def take_changes(self) -> Changes:
        """What a store must keep before the replies since the last call may go out."""
        return self._state.take_changes()

    def wake_at_s(self) -> float | None:
        """When a Tick has something to do."""
        return self._state.wake_at_s() if self._refreshed else 0.0

    # -- order of things ---------------------------------------------------------------------------------------

    def _time_passes(self, now_s: float) -> None:
        state = self._state
        due = state.take_due(now_s) if self._refreshed else state.wake_up(now_s)
        self._refreshed = True
        if 0.0 < state.grace_until_s <= now_s:
            state.grace_until_s = 0.0
            state.unsettled = True
            state.take_stock(now_s)
        state.learn(now_s)
        for job in due:
            self._leasing.time_passed(job, now_s)

    def _request(self, request: Request, now_s: float) -> Refusal | None:
        seq = request.seq
        if request.ack >= seq:
            return _bad("ack", "must be below seq: it is the number of an earlier request")
        job = self._state.jobs.get(request.job_uid)
        is_new = type(request) is Register
        refusal = self._registry.refusal_of(request, now_s) if is_new else self._who_refused(job, request)  # type: ignore[arg-type]  # a Register, as just asked
        if refusal is not None:
            return refusal
        if job is not None and seq <= job.seq and job.attempt == request.attempt:
            return self._known_seq(job, request, now_s)
        if is_new:
            job = self._registry.register(request, now_s)  # type: ignore[arg-type]  # likewise
        elif job is not None and now_s > job.answered_s + UNHEARD_AFTER_S:
            self._registry.came_back(job, now_s)
        assert job is not None
        if job.held is not None:
            self._state.refuse_held(job, _SUPERSEDED)
        self._leasing.confirmed(job, request.ack, now_s)
        job.seq = seq
        self._handlers[type(request)](job, request, now_s)
        return None

    def _known_seq(self, job: Job, request: Request, now_s: float) -> Refusal | None:
        """The answer again, unchanged; nothing for the one that is held: whoever sent it again waits on.

        A request that was withdrawn or held when the coordinator stopped is refused like an old one: its answer would
        count from a first send of long ago and be dead on arrival.
        """
        if request.seq == job.answered_seq:
            self._state.replay(job, now_s)
        elif job.held is None or request.seq != job.held.seq:
            return _old_seq(job)
        return None

    def _who_refused(self, job: Job | None, request: Request) -> Refusal | None:
        if job is not None and request.attempt < job.attempt:
            return stale(job.attempt)
        if job is None or request.attempt > job.attempt or _strange(job, request):
            return Refusal(
                reason=RefusalReason.UNKNOWN_JOB,
                status=404,
                detail="this attempt of the job is not registered here: register it first",
            )
        if not isinstance(request, _SPEAKS_OF_A_LEASE) or _holds(job, request.fence):
            return None
        if self._holding.holder_of(request.fence) is None:
            return None
        return Refusal(
            reason=RefusalReason.FOREIGN_LEASE,
            status=409,
            detail="the lease with this fence belongs to another job",
            field="fence",
        )

    def _disconnected(self, command: Disconnected) -> None:
        job = self._state.jobs.get(command.job_uid)
        if job is None or job.held is None:
            return
        if (job.attempt, job.held.seq) == (command.attempt, command.seq):
            self._leasing.withdraw(job)

    # -- requests that are noted -------------------------------------------------------------------------------

    def _register(self, job: Job, request: Register, now_s: float) -> None:
        self._state.outgrow(request.seen_epoch)
        self._note(job, request.seq, now_s)

    def _heartbeat(self, job: Job, request: Heartbeat, now_s: float) -> None:
        self._registry.heard(job, request, now_s)
        self._note(job, request.seq, now_s)

    def _release(self, job: Job, request: Release, now_s: float) -> None:
        if job.lease is not None and job.lease.fence == request.fence:
            committed = request.outcome is Outcome.COMMITTED
            turn_of(job).notice_served |= committed and job.lease.deadline_at_s is not None
            if committed:
                self._leasing.learn(job, job.lease, request, now_s)
            self._holding.end(job, LeaseState.RELEASED, GoneReason.RELEASED, now_s)
        turn = job.turn
        if (
            turn is not None and turn.ended_fence == request.fence
        ):  # also a save whose lease had lapsed at its end
            self._registry.save_ended(job, turn, request, now_s)
            turn.ended_fence = None
        self._note(job, request.seq, now_s)

    def _finish(self, job: Job, request: Finish, now_s: float) -> None:
        if job.lease is not None:
            self._holding.end(job, LeaseState.RELEASED, GoneReason.RELEASED, now_s)
        self._registry.finished(job, request.reason, now_s)
        self._note(job, request.seq, now_s, with_plan=False)

    def _note(self, job: Job, seq: int, now_s: float, *, with_plan: bool = True) -> None:
        plan = self._registry.plan_for(job, now_s) if with_plan else None
        confirm = with_plan and counting.needs_contact(job, now_s)
        is_plain = plan is None and not confirm
        noted = _plain(seq) if is_plain else Noted(seq=seq, held_s=0.0, confirm=confirm, plan=plan)
        self._state.reply(job, noted, now_s, now_s)

    # -- views -------------------------------------------------------------------------------------------------

    @property
    def totals(self) -> Totals:
        return self._state.totals

    def pool_view(self, now_s: float) -> PoolView:
        return self._viewing.pool(self._state.price, self._leasing.live_price(now_s), now_s)

    def job_views(self, now_s: float) -> list[JobView]:
        return self._viewing.jobs(self._leasing.live_price(now_s), now_s)

    def lease_views(self, now_s: float) -> list[LeaseView]:
        return self._viewing.leases(now_s)

    def validate(self, now_s: float) -> None:
        """Raise BrokenInvariant if anything that must always hold does not. Looks at every job: a check by sample."""
        validating.validate(self._state, now_s)

    def timeline(self) -> tuple[TimelineRow, ...]:
        return self._state.timeline()


def decide(ledger: Ledger, command: Command, now_s: float) -> tuple[Reply, ...]:
    """`apply` for whoever has no other thread: a question for the price is answered at once."""
    replies = ledger.apply(command, now_s)
    question = ledger.take_question(now_s)
    priced = None if question is None else question.answer()
    return replies if priced is None else replies + ledger.apply(priced, now_s)


@lru_cache(maxsize=NUM_PLAIN_ANSWERS)
def _plain(seq: int) -> Noted:
    """The answer that says nothing else: nearly all answers are one of these, so they are shared by all jobs."""
    return Noted(seq=seq, held_s=0.0, confirm=False)


def _strange(job: Job, request: Request) -> bool:
    """It speaks after its goodbye, or has applied an answer that this memory never gave: it must register first."""
    said_goodbye = job.finished and request.seq != job.answered_seq
    return said_goodbye or request.ack > job.answered_seq


def _holds(job: Job, fence: Fence) -> bool:
    return job.lease is not None and job.lease.fence == fence


def _bad(field: str, detail: str) -> Refusal:
    return Refusal(reason=RefusalReason.BAD_REQUEST, status=422, detail=detail, field=field)


def _old_seq(job: Job) -> Refusal:
    return Refusal(
        reason=RefusalReason.OLD_SEQ,
        status=409,
        detail=f"request {job.seq} of this attempt is already known; numbers only grow",
        field="seq",
    )
