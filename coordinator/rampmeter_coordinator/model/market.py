"""What all jobs of a pool ask of it, and the price at which that fits.

Solved again only when somebody's figures have moved noticeably and the last solution has some age: a plan is a forecast
and may be a little old. Between two solutions a decision costs nothing here.
"""

from collections.abc import Mapping

from rampmeter.core.interval import Load
from rampmeter_coordinator.model import planning, pricing
from rampmeter_coordinator.model.records import Job

SOLVE_AFTER_S = 2.0
SOLVE_AFTER_S_PER_JOB = 1e-3
"""The price is solved again at most every 2 s, in large pools less often: a solution costs about 2 us per job."""

SOLVE_ANYHOW_S = 300.0
"""... and at least this often, since lost jobs leave without a word."""

NOTICEABLE = 0.05
SAME_PRICE = 0.01


class Market:
    """The price at which the jobs that count fit. What they ask is in their records, and nowhere else."""

    def __init__(self, jobs: Mapping[str, Job]) -> None:
        self.price = 0.0
        self._jobs = jobs
        self._budget_bytes_per_s = 0
        self._solved_s = float("-inf")
        self.look_again_s = 0.0
        """Before this there is nothing to solve."""
        self._moved = True

    def figures_changed(self, job: Job, before: Load | None) -> None:
        """The job has registered or something was learned of it: its plan is due, and perhaps a new price.

        before: what it asked for until now; None for a job that is new, or comes back.
        """
        job.load = job.planned_price = None
        if before is None or _noticeable(before, planning.load_of(job)):
            self._move()

    def left(self) -> None:
        """A job has finished."""
        self._move()

    def _move(self) -> None:
        self._moved = True
        self.look_again_s = min(self.look_again_s, self._solved_s + SOLVE_AFTER_S)

    def solve(self, budget_bytes_per_s: int, now_s: float) -> None:
        """Bring the price up to date where that is due. The budget follows what storage was seen to sustain."""
        age_s = now_s - self._solved_s
        self.look_again_s = now_s + SOLVE_AFTER_S
        moved_by = abs(budget_bytes_per_s - self._budget_bytes_per_s)
        self._moved |= moved_by > NOTICEABLE * self._budget_bytes_per_s
        if not (self._moved or age_s > SOLVE_ANYHOW_S):
            return
        if age_s < SOLVE_AFTER_S_PER_JOB * len(self._jobs):
            return
        asking = (job for job in self._jobs.values() if not (job.finished or planning.is_lost(job, now_s)))
        price = pricing.solve([planning.load_of(job) for job in asking], budget_bytes_per_s)
        if abs(price - self.price) > SAME_PRICE * self.price:  # else no interval moves out of its dead band
            self.price = price
        self._solved_s, self._budget_bytes_per_s, self._moved = now_s, budget_bytes_per_s, False


def _noticeable(old: Load, new: Load) -> bool:
    return any(
        abs(after - before) > NOTICEABLE * before
        for before, after in (
            (old.num_bytes, new.num_bytes),
            (old.num_gpus, new.num_gpus),
            (old.cost_s, new.cost_s),
            (old.mtbf_s, new.mtbf_s),
            (old.floor_s, new.floor_s),
        )
    )
