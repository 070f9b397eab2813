"""What the attempts of a job mean: an end is a failure or none, time is credited, what was lost is charged to a cause.

Dated by the coordinator's own clock: an attempt ends with its last contact, time in which nothing was heard of it
counts for nothing, and what a job says of its own times is bounded by what passed here. Decides nothing that a job is
told, but for M: when a pool's failures have moved noticeably, what all its jobs ask for is worked out anew.
"""

from rampmeter.core.messages import EndReason, Heartbeat, Kind, Outcome, Register, Release, Survives
from rampmeter_coordinator.model import counting, planning, restarts
from rampmeter_coordinator.model.failures import LOOK_EVERY_S, MOST_GPUS
from rampmeter_coordinator.model.goodput import OBSERVED, Cause, unpacked
from rampmeter_coordinator.model.history import History
from rampmeter_coordinator.model.market import Market
from rampmeter_coordinator.model.records import Job, Waiter
from rampmeter_coordinator.model.state import PoolState

UNHEARD_AFTER_S = 60.0
"""Longer than any request is held, and four heartbeats: what was not heard of for so long may not have run."""

ROUND_TRIP_S = 60.0
"""A start may have begun so long before its registration."""

_ON_PURPOSE = (EndReason.FINISHED, EndReason.CANCELLED)


class Attempts:
    """The attempts of one pool's jobs."""

    def __init__(self, state: PoolState, market: Market) -> None:
        self._state = state
        self._market = market
        self._num_gpus = 0
        """That run now, as failures are expected of them: looked up now and then."""
        self._counted_s = float("-inf")

    # -- an attempt begins -------------------------------------------------------------------------------------

    def presented(self, job: Job, request: Register) -> None:
        """Keep what the job says of its failures, where it says anything."""
        if job.history is None and request.restart_s is None and request.survives is Survives.NODE:
            return
        history = self._state.history_of(job)
        history.believed_restart_s, history.survives = request.restart_s, request.survives

    def again(self, job: Job, now_s: float) -> None:
        """The same attempt has registered once more; the time since its goodbye, if it said one, is not observed."""
        if job.finished or now_s > counting.last_heard_s(job) + UNHEARD_AFTER_S:
            self.came_back(job, now_s)
            self._state.history_of(job).ended = None

    def replaced(self, job: Job, now_s: float) -> None:
        """A newer attempt has registered, and nothing of the older one is overwritten yet."""
        history, last_s = self._state.history_of(job), counting.last_heard_s(job)
        self._credit(job, last_s, now_s)
        on_purpose = history.ended in _ON_PURPOSE
        long_enough = last_s - job.registered_s > restarts.restart_s(job)
        if _is_unclean(history) and _has_worked(job) and long_enough:
            self._failed(job, history, last_s, now_s)
        self._charge_end(job, history, last_s, on_purpose=on_purpose)
        if not on_purpose:
            history.num_interruptions += 1
            self._state.count("interruptions")
            self._was_down(job, history, now_s - last_s)
        history.kept_step, history.step_s = _kept_step(job, on_purpose=on_purpose), _step_s(job, last_s)
        history.ended, history.startup_s, history.queued_s, history.unheard_s = None, 0.0, 0.0, 0.0
        history.is_announced = history.is_saved = False
        job.began_step, history.is_up = None, False
        self._look(now_s)

    def starting(self, job: Job, request: Heartbeat, now_s: float) -> None:
        """The attempt tells from where it goes on, and in the end how its start went."""
        if request.restored_step is not None:
            job.began_step = request.restored_step
        elif job.began_step is None:
            job.began_step = request.step
        if request.warm_up_s is None:
            return
        history, most_s = self._state.history_of(job), now_s - job.registered_s
        history.is_up = True
        load_s = request.load_s or 0.0
        history.startup_s = min(load_s + request.warm_up_s, max(0.0, most_s - history.unheard_s))
        if load_s + request.warm_up_s <= most_s + ROUND_TRIP_S:
            restarts.has_warmed_up(history, request.warm_up_s)
            if request.load_s is not None:
                restarts.has_loaded(history, load_s)
        if request.restored_step is not None or history.num_interruptions:
            self._credit(job, now_s, now_s)
            self._charge_back(job, Cause.RESTART, history.startup_s - history.queued_s)
        self._charge_fall_back(job, history, request)

    def _charge_fall_back(self, job: Job, history: History, request: Heartbeat) -> None:
        """An older step was restored than the attempt before left behind: by name, or since the newer was not good."""
        kept_step, history.kept_step = history.kept_step, None
        step_s = history.step_s if request.step_s is None else request.step_s
        if request.restored_step is None or kept_step is None or step_s is None:
            return
        lost_s = max(0, kept_step - request.restored_step) * step_s
        cause = Cause.DISCARDED if request.rolled_back else Cause.REWORK
        self._charge_back(job, cause, lost_s)

    # -- it goes on --------------------------------------------------------------------------------------------

    def came_back(self, job: Job, now_s: float) -> None:
        """It was not heard of for a while: that time is credited to nobody."""
        last_s = counting.last_heard_s(job)
        self._credit(job, last_s, now_s)
        self._state.history_of(job).unheard_s += now_s - last_s

    def is_durable(self, job: Job, age_s: float) -> None:
        """Work of `age_s` ago is durable: silence before that costs nothing any more."""
        if job.history is not None and job.history.unheard_s > age_s:
            job.history.unheard_s = age_s

    def save_ended(self, job: Job, request: Release, now_s: float) -> None:
        """A save is over, well or not: what it held training up for, as far as it says."""
        passed_s = self._credit(job, now_s, now_s)
        self._state.charge(job, Cause.STALLED, min(_stalled(job, request), passed_s))
        history = self._state.history_of(job)
        history.is_saved = history.is_announced and request.outcome is Outcome.COMMITTED
        if request.outcome is Outcome.COMMITTED:
            self.is_durable(job, request.write_s or 0.0)
        self._look(now_s)

    # -- it ends -----------------------------------------------------------------------------------------------

    def finished(self, job: Job, reason: EndReason, now_s: float) -> None:
        """The attempt has said goodbye."""
        self._credit(job, now_s, now_s)
        self._state.history_of(job).ended = reason
        self._look(now_s)

    def _charge_end(self, job: Job, history: History, last_s: float, *, on_purpose: bool) -> None:
        """What died with the attempt: work that was not durable, or a start that came to nothing.

        Also of a preempted one whose save was in time: what it did beside that save is done again.
        """
        heard_s = last_s - history.unheard_s
        if not _has_worked(job):
            charged_s = max(history.startup_s, history.queued_s)
            self._charge_back(job, Cause.RESTART, heard_s - job.registered_s - charged_s)
        elif not on_purpose:
            since_s = job.registered_s + history.startup_s
            if job.snapshot_s is not None:
                since_s = max(since_s, job.snapshot_s)
            self._charge_back(job, Cause.REWORK, heard_s - since_s)

    def _charge_back(self, job: Job, cause: Cause, lost_s: float) -> None:
        """Time that was credited before turns out to be lost: no more of it than there is."""
        self._state.charge(job, cause, min(lost_s, unpacked(self._state.history_of(job).account).useful))

    def _was_down(self, job: Job, history: History, down_s: float) -> None:
        if 0.0 <= down_s <= restarts.LONGEST_DOWN_S:
            restarts.was_down(history, down_s)
            self._state.charge(job, OBSERVED, down_s)
            self._state.charge(job, Cause.RESTART, down_s)

    def _failed(self, job: Job, history: History, date_s: float, now_s: float) -> None:
        state = self._state
        expected_per_s = self._expected_per_s(now_s)
        state.count("failures")
        for uid in state.failures.failed(job, history, date_s, expected_per_s, now_s):
            other = state.jobs.get(uid)
            if other is not None and other is not job and other.history is not None:
                self._credit(other, _heard_until(other, now_s), now_s)
                state.failures.take_back(other.history, date_s, now_s)
                state.touch(other, now_s)

    def _expected_per_s(self, now_s: float) -> float:
        """How many failures a second are expected of all that run, at the believed rate."""
        if now_s >= self._counted_s + LOOK_EVERY_S:
            self._counted_s = now_s
            running = (job for job in self._state.jobs.values() if not job.finished)
            self._num_gpus = sum(min(job.num_gpus, MOST_GPUS) for job in running)
        return self._num_gpus / (self._state.failures.gpu_hours_per_failure * 3600.0)

    # -- time --------------------------------------------------------------------------------------------------

    def _credit(self, job: Job, until_s: float, now_s: float) -> float:
        """The attempt ran from where it was credited last to `until_s`: how long that is. Up to now nothing is left."""
        history = self._state.history_of(job)
        job.load = None  # M is of what has been credited
        from_s = max(history.credited_s, job.registered_s)
        passed_s = max(0.0, until_s - from_s)
        self._state.failures.ran(history, job.num_gpus, from_s, from_s + passed_s, now_s)
        self._state.charge(job, OBSERVED, passed_s)
        return passed_s

    def _look(self, now_s: float) -> None:
        """Where the pool's failures have moved noticeably, all jobs are believed to fail at another rate."""
        state = self._state
        if not state.failures.is_news(now_s):
            return
        for job in state.jobs.values():
            job.belief, job.load, job.planned_price = state.failures.belief, None, None
            if not (job.finished or planning.is_lost(job, now_s)):
                self._market.figures_changed(job)


def waited(state: PoolState, job: Job, waiter: Waiter, now_s: float) -> None:
    """A slot was granted: where the GPUs were idle until now, that is lost; and whether an end was announced.

    For a background read nothing stood still.
    """
    if waiter.background:
        return
    history, waited_s = state.history_of(job), now_s - waiter.since_s
    if waiter.kind is Kind.READ:
        history.queued_s += waited_s
        state.charge(job, Cause.WAITING, waited_s)
        return
    history.is_announced, history.is_saved = waiter.deadline_at_s is not None, False
    if job.terms.synchronous and not waiter.started:
        state.charge(job, Cause.WAITING, waited_s)


def _is_unclean(history: History) -> bool:
    """No goodbye, a failure, or a preemption whose announced save was not committed."""
    if history.ended is EndReason.PREEMPTED:
        return not history.is_saved
    return history.ended not in _ON_PURPOSE


def _has_worked(job: Job) -> bool:
    return job.began_step is not None and job.step > job.began_step


def _heard_until(job: Job, now_s: float) -> float:
    last_s = counting.last_heard_s(job)
    return last_s if job.finished or now_s - last_s > UNHEARD_AFTER_S else now_s


def _kept_step(job: Job, *, on_purpose: bool) -> int | None:
    """What the attempt left behind: all its steps, or those that were durable when it died."""
    if on_purpose:
        return job.step
    return job.began_step if job.committed_step is None else job.committed_step


def _step_s(job: Job, last_s: float) -> float | None:
    """How long a step took, by the clock."""
    if job.began_step is None or job.step <= job.began_step:
        return None
    return (last_s - job.registered_s) / (job.step - job.began_step)


def _stalled(job: Job, request: Release) -> float:
    """What the save cost training: the stall and what steps beside it lost; the whole write where training waits."""
    if job.terms.synchronous:
        return request.write_s or request.stall_s or 0.0
    at_work_s = max(0.0, (request.write_s or 0.0) - request.throttled_s)
    return (request.stall_s or 0.0) + (request.eps or 0.0) * at_work_s
