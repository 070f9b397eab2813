"""Who the jobs are: registration, attempts, heartbeats, ends, plans, and what is learned from their saves.

A job is known by its uid; a newer attempt fences the older. Grants nothing.
"""

import math
from itertools import islice

from msgspec.structs import replace

from rampmeter.core import phase
from rampmeter.core.messages import EndReason, Heartbeat, Outcome, Plan, RefusalReason, Register, Release
from rampmeter_coordinator.model import bidding, counting, estimates, failures, planning
from rampmeter_coordinator.model.attempts import Attempts
from rampmeter_coordinator.model.commands import Priced, Refusal
from rampmeter_coordinator.model.market import Market
from rampmeter_coordinator.model.particulars import NO_MISHAPS, Mishaps, Save, Turn, shared_terms
from rampmeter_coordinator.model.pricing import Question
from rampmeter_coordinator.model.records import Job, SafeOffer
from rampmeter_coordinator.model.state import PoolState

NUM_PHASES_COMPARED = 64
LIVE_FOR_S = 2.0
"""How old the live price may be that is told with a plan."""

MOST_FAILED_AT_ONCE = 100
"""No job fails more often between two of its words: one that says so spoils no counter."""

LOOK_FOR_ROOM_S = 1.0
"""A full pool is looked through for lost jobs this often at most, however many ask to come in."""


class Registry:
    """The jobs of one pool and their plans."""

    def __init__(self, state: PoolState) -> None:
        self._state = state
        self._market = Market(state)
        self._attempts = Attempts(state, self._market)
        self._blank_plan = planning.blank_plan(state.config)
        self._full_until_s = 0.0
        """Nobody had left when all jobs were looked through last."""
        self._live, self._live_until_s = 0.0, -math.inf

    # -- registration ------------------------------------------------------------------------------------------

    def refusal_of(self, request: Register, now_s: float) -> Refusal | None:
        """Why this attempt may not register, if so."""
        job = self._state.jobs.get(request.job_uid)
        if job is None:
            return None if self._has_room(now_s) else _too_many(self._state.config.max_jobs)
        newer = request.attempt > job.attempt
        same = request.attempt == job.attempt and request.claim == job.claim.hex()
        return None if newer or same else stale(job.attempt)

    def register(self, request: Register, now_s: float) -> Job:
        """Make the attempt the newest of its job, or find it so already. The answer is the caller's."""
        job = self._state.jobs.get(request.job_uid)
        if job is None:
            job = self._state.jobs[request.job_uid] = self._new_job(request, now_s)
        elif request.attempt > job.attempt:
            self._new_attempt(job, request, now_s)
        else:
            self._attempts.again(job, now_s)
        job.finished = False
        job.safe_offers = (self._held_before(request),)
        self._take_figures(job, request)
        self._attempts.presented(job, request)
        self._state.touch(job, now_s)
        self._market.registered(job)
        return job

    def _new_job(self, request: Register, now_s: float) -> Job:
        return Job(
            uid=request.job_uid,
            name=request.name,
            attempt=request.attempt,
            claim=bytes.fromhex(request.claim),
            num_gpus=request.num_gpus,
            registered_s=now_s,
            plan=self._blank_plan,
            belief=self._state.failures.belief,
        )

    def _held_before(self, request: Register) -> SafeOffer:
        """What the agent says it may use when silent: answers that it did not apply are void with this request."""
        return SafeOffer(
            seq=0,
            number=0,
            bytes_per_s=request.safe_bytes_per_s,
            after_s=self._blank_plan.safe_after_s,
            for_s=self._blank_plan.safe_for_s,
        )

    def _new_attempt(self, job: Job, request: Register, now_s: float) -> None:
        self._attempts.replaced(job, now_s)
        if self._state.enforces(job):
            counting.fence_off(job, self._state.config, now_s)
        self._state.refuse_held(job, stale(request.attempt))
        self._state.let_go(job)
        self._state.unsettled = True
        job.attempt, job.claim, job.registered_s = request.attempt, bytes.fromhex(request.claim), now_s
        job.seq = job.answered_seq = 0
        job.turn, job.mishaps = None, NO_MISHAPS
        job.answer, job.contact_s, job.snapshot_s = None, None, None
        job.plan = self._blank_plan

    @staticmethod
    def _take_figures(job: Job, request: Register) -> None:
        job.name, job.num_gpus, job.mtbf_s = request.name, request.num_gpus, request.mtbf_s
        job.terms = shared_terms(
            request.tenant, request.interval_min_s, request.interval_max_s, request.synchronous
        )
        estimates.believe(job, request.num_bytes, request.stall_s, request.write_s)

    def _has_room(self, now_s: float) -> bool:
        jobs = self._state.jobs
        if len(jobs) < self._state.config.max_jobs:
            return True
        if now_s < self._full_until_s:
            return False
        for job in jobs.values():
            if counting.counted(job, self._state.config, now_s) == 0 and (
                job.finished or planning.is_lost(job, now_s)
            ):
                self._market.forgotten(job)
                self._state.remove(job)  # it asked for nothing any more
                return True
        self._full_until_s = now_s + LOOK_FOR_ROOM_S
        return False

    # -- plans -------------------------------------------------------------------------------------------------

    def take_question(self, now_s: float) -> Question | None:
        """What is to be answered so that plans follow what all ask; None where it is not time to ask."""
        return self._market.take_question(now_s)

    def priced(self, command: Priced, now_s: float) -> None:
        """Plans follow this price from now on; claims that were found absurd are counted."""
        self._state.set_price(command.price_gpu_s_per_byte)
        for uid in command.absurd:
            job = self._state.jobs.get(uid)
            if job is not None:
                self._found_absurd(job)
                self._state.touch(job, now_s)

    def _found_absurd(self, job: Job) -> None:
        """What the job claims of itself, not what it reports of a save: counted once until it claims something else."""
        if self._market.found_absurd(job):
            self._state.count("absurd")
            estimates.doubt(job, None)

    def plan_for(self, job: Job, now_s: float) -> Plan | None:
        """The plan to send with the next answer; None while the job has confirmed the newest."""
        state = self._state
        may_get_more = job.wants_more_safe and state.has_safe_room and not state.in_grace
        if job.planned_price != state.price or may_get_more or state.issued_too_much:
            self._replan(job, state.safe_room_for(job, only_as_before=state.in_grace), now_s)
        plan = self._told(job, now_s) if job.safe_offers else None
        if job.waiter is None:
            job.load = None  # nobody looks at it before it asks for a slot: most jobs need not have it
        return plan

    def _replan(self, job: Job, room_bytes_per_s: int, now_s: float) -> None:
        before, price = job.plan, self._state.price
        job.plan = planning.replanned(job, price, room_bytes_per_s, self._state.config)
        if before.number == 0:
            job.plan = replace(job.plan, phase_offset_s=self._draw_offset(job, now_s))
        if job.plan is not before and not job.safe_offers:
            job.safe_offers = (counting.safe_offer(0, before),)  # until it confirms the new one
        wanted = planning.wanted_safe_rate(job, job.plan.interval_s)
        job.wants_more_safe, job.planned_price = job.plan.safe_bytes_per_s < wanted, price

    def _told(self, job: Job, now_s: float) -> Plan:
        since_s = job.registered_s if job.snapshot_s is None else job.snapshot_s
        bid = planning.load_of(job).bid(now_s - since_s)
        return planning.told(job.plan, bid=bid, live_price=self._live_price(now_s))

    def _live_price(self, now_s: float) -> float:
        """Of the last moment: many who are told a plan at once must not mean many looks at all who wait."""
        if now_s >= self._live_until_s:
            self._live_until_s = now_s + LIVE_FOR_S
            self._live = bidding.live_price(self._state.waiting.values(), now_s)
        return self._live

    def _draw_offset(self, job: Job, now_s: float) -> float:
        recent = islice(reversed(self._state.jobs.values()), NUM_PHASES_COMPARED)
        others = [_due_in(other, now_s) for other in recent if other is not job and not other.finished]
        return phase.draw_offset(job.plan.interval_s, others, self._state.rng)

    # -- what jobs tell ----------------------------------------------------------------------------------------

    def heard(self, job: Job, request: Heartbeat, now_s: float) -> None:
        """Take in a heartbeat."""
        job.step = request.step
        self._told_failures(job, request)
        job.mishaps = _mishaps(request)
        if request.committed_step is not None:
            job.committed_step = request.committed_step
        if request.commit_age_s is not None:
            job.snapshot_s = now_s - request.commit_age_s
            self._attempts.is_durable(job, request.commit_age_s)
        tells = request.warm_up_s is not None or request.restored_step is not None
        if job.began_step is None or (tells and (job.history is None or not job.history.is_up)):
            self._attempts.starting(job, request, now_s)

    def _told_failures(self, job: Job, request: Heartbeat | Release) -> None:
        """Count by the newest reason what has failed since it was told last: a lost message costs no failure."""
        num_new = request.num_failed - job.mishaps.num_failed
        if num_new > 0:
            self._state.count_failed_saves(request.last_failure, min(num_new, MOST_FAILED_AT_ONCE))
            job.mishaps = replace(
                job.mishaps, num_failed=request.num_failed, last_failure=request.last_failure
            )

    def came_back(self, job: Job, now_s: float) -> None:
        """It is heard of again after a silence."""
        self._attempts.came_back(job, now_s)

    def save_ended(self, job: Job, turn: Turn, request: Release, now_s: float) -> None:
        """Count a save and learn from it; an aborted, failed or absurd one teaches nothing."""
        self._attempts.save_ended(job, request, now_s)
        self._told_failures(job, request)
        save, turn.save = turn.save, None
        if request.outcome is not Outcome.COMMITTED:
            self._state.count("failed" if request.outcome is Outcome.FAILED else "aborted")
            return
        self._state.count("committed")
        estimates.evidence_of(job).num_committed += 1
        job.committed_step = request.step
        job.step = max(job.step, request.step or 0)
        job.snapshot_s = max(now_s - (request.write_s or 0.0), _earliest_s(job, save))
        if save is not None and save.is_doubted:
            return
        if estimates.is_absurd_save(save, request, self._most_bytes_per_s(job), now_s):
            self._state.count("absurd")
            estimates.doubt(job, save)
        else:
            self._state.count("written_bytes", request.done_bytes)
            estimates.learn(job, request, planning.load_of(job))
            self._market.committed(job)
            if failures.is_absurd(job):
                self._found_absurd(job)

    def _most_bytes_per_s(self, job: Job) -> int | None:
        """What no lease of the job is above; in shadow mode they follow what the job says of itself."""
        return self._state.config.capacity_bytes_per_s if self._state.enforces(job) else None

    def finished(self, job: Job, reason: EndReason, now_s: float) -> None:
        """The attempt has said goodbye and promised to write no more."""
        self._attempts.finished(job, reason, now_s)
        self._full_until_s = 0.0
        job.finished = True
        job.safe_offers = ()
        if job.turn is not None:
            job.turn.queued_since_s = None
        self._market.left(job)


def stale(stored_attempt: int) -> Refusal:
    """Another claim has registered `stored_attempt`, the newest attempt that is known."""
    return Refusal(
        reason=RefusalReason.STALE_ATTEMPT,
        status=409,
        detail=f"attempt {stored_attempt} of this job is registered by another claim; "
        "stop saving, or claim the next attempt in the root and register that",
        stored_attempt=stored_attempt,
    )


def _mishaps(request: Heartbeat) -> Mishaps:
    if not (request.num_failed or request.num_skipped or request.num_ungoverned):
        return NO_MISHAPS
    return Mishaps(
        num_failed=request.num_failed,
        last_failure=request.last_failure,
        num_skipped=request.num_skipped,
        num_ungoverned=request.num_ungoverned,
    )


def _too_many(max_jobs: int) -> Refusal:
    detail = (
        f"the pool already has {max_jobs} jobs, none of them finished or lost; raise max_jobs or finish some"
    )
    return Refusal(reason=RefusalReason.TOO_MANY_JOBS, status=503, detail=detail)


def _due_in(job: Job, now_s: float) -> float:
    if job.snapshot_s is None:
        return job.registered_s + job.plan.phase_offset_s - now_s
    return job.snapshot_s + job.plan.interval_s - now_s


def _earliest_s(job: Job, save: Save | None) -> float:
    """A snapshot is not older than its grant, nor than its attempt."""
    return job.registered_s if save is None or save.begun_s is None else save.begun_s
