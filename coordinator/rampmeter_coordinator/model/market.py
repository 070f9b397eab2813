"""What all jobs of a pool ask of it, and when to ask again for the price at which that fits.

A question is a copy of a few columns; whoever drives the ledger has it answered, in production beside the event loop,
and the answer comes back as a command. So a decision costs nothing here, and a replay needs no solver. Between two
answers plans follow an older price: a plan is a forecast and may be a little old. What is kept here decides when is
asked and nothing else.
"""

import math

from rampmeter.core.interval import Load
from rampmeter.core.messages import Kind
from rampmeter_coordinator.model import estimates, planning
from rampmeter_coordinator.model.columns import Columns
from rampmeter_coordinator.model.particulars import Claims
from rampmeter_coordinator.model.pricing import Question
from rampmeter_coordinator.model.records import Job
from rampmeter_coordinator.model.state import PoolState

NOTICEABLE = 0.02
"""Of the budget: where demand or budget have moved by more since the last question, the next one comes soon."""

ASK_SOON_S = 1.0
ASK_SOON_S_PER_JOB = 1e-4
"""Soon is at most every second, in large pools less often: an answer costs about 1 us of CPU per job."""

ASK_ANYHOW_S = 5.0
"""Anything that has moved at all is in the price after this."""

LOOK_FOR_LOST_S = 60.0
"""Jobs that are lost leave without a word, and come back so."""


class Market:
    """The jobs of one pool as the price sees them."""

    def __init__(self, state: PoolState) -> None:
        self._state = state
        self._columns = Columns()
        self._asked_s = self._looked_s = -math.inf
        self._asked_budget_bytes_per_s = 0
        self._moved_bytes_per_s = 0.0
        self._absurd: set[str] = set()
        """Who still claims what was found absurd."""
        for job in state.jobs.values():
            self._enter(job)
            self._look_at_claims(job)
            self._put(job)
            job.load = None
            if job.finished:
                self.left(job)

    # -- what moves --------------------------------------------------------------------------------------------

    def registered(self, job: Job) -> None:
        """The job has said its figures. What nothing bears out yet counts for no more than is usual.

        A job that has saved before stays believed in what it asked for until now.
        """
        self._look_at_claims(job)
        if job.row < 0:
            self._enter(job)
            self.figures_changed(job)
            return
        before = self._demand(job)
        self.figures_changed(job)
        if self._demand(job) > (1.0 + NOTICEABLE) * before:
            self._columns.believe(job.row, min(before, self._columns.believed(job.row)))

    def committed(self, job: Job) -> None:
        """A save bears out what the job says of itself."""
        if self._columns.believed(job.row) < math.inf:
            self._moved_bytes_per_s += self._demand(job)
            self._columns.believe(job.row, math.inf)
        self.figures_changed(job)

    def figures_changed(self, job: Job) -> None:
        """Something was learned of the job: its plan is due, and perhaps a new price."""
        job.load = job.planned_price = None
        self._put(job)

    def left(self, job: Job) -> None:
        """The job has finished: it asks for nothing."""
        if self._columns.asks(job.row):
            self._moved_bytes_per_s += self._demand(job)
            self._columns.silence(job.row)

    def forgotten(self, job: Job) -> None:
        """There is no such job any more."""
        self.left(job)
        self._absurd.discard(job.uid)
        self._columns.free(job.row)

    def found_absurd(self, job: Job) -> bool:
        """What the job claims is absurd: whether that is news. It is not until it claims something else that is."""
        known, claims = estimates.evidence_of(job), _claims(job)
        is_news = known.absurd != claims
        known.absurd = claims
        self._absurd.add(job.uid)
        return is_news

    def _look_at_claims(self, job: Job) -> None:
        if job.known.absurd == _claims(job):
            self._absurd.add(job.uid)
        else:
            self._absurd.discard(job.uid)

    def _enter(self, job: Job) -> None:
        job.row = self._columns.new_row(job.uid)
        self._columns.believe(job.row, math.inf if job.known.of_bytes else 0.0)
        self._columns.silence(job.row)

    def _put(self, job: Job) -> None:
        before = self._demand(job) if self._columns.asks(job.row) else 0.0
        self._columns.put(job.row, self._load(job))
        self._moved_bytes_per_s += abs(self._demand(job) - before)

    def _load(self, job: Job) -> Load:
        return planning.load_in(self._state.config, job)

    def _demand(self, job: Job) -> float:
        return self._columns.demand(job.row, self._state.price)

    # -- when to ask -------------------------------------------------------------------------------------------

    def take_question(self, now_s: float) -> Question | None:
        """What is to be answered with a `Priced` command, if it is time to ask; one question at a time, please."""
        state = self._state
        soon_s = max(ASK_SOON_S, ASK_SOON_S_PER_JOB * len(state.jobs))
        if now_s < self._asked_s + soon_s:
            return None
        if now_s >= self._looked_s + LOOK_FOR_LOST_S:
            self._look_for_lost(now_s)
        budget = state.budget(Kind.WRITE)
        moved = max(self._moved_bytes_per_s, abs(budget - self._asked_budget_bytes_per_s))
        if moved == 0.0 or (moved <= NOTICEABLE * budget and now_s < self._asked_s + ASK_ANYHOW_S):
            return None
        self._asked_s, self._asked_budget_bytes_per_s, self._moved_bytes_per_s = now_s, budget, 0.0
        asked, rows, uids = self._columns.asked()
        return Question(
            asked=asked,
            budget_bytes_per_s=budget,
            base_price=state.config.base_price_gpu_s_per_byte,
            price=state.price,
            rows=rows,
            uids=uids,
            known=frozenset(self._absurd),
        )

    def _look_for_lost(self, now_s: float) -> None:
        """Changes nothing of a job: no reply may depend on when a question is asked."""
        self._looked_s = now_s
        for job in self._state.jobs.values():
            if job.finished:
                continue
            if planning.is_lost(job, now_s):
                self.left(job)
            elif job.num_bytes and not self._columns.asks(job.row):
                self._put(job)


def _claims(job: Job) -> Claims:
    return Claims(num_gpus=job.num_gpus, mtbf_s=job.mtbf_s, wish_s=job.terms.interval_max_s)
