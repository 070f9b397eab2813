"""When the next save of an attempt is due: the dry run, the second at its phase offset, then one period after another.

Pure; randomness comes as `draw`. A save that would be due while another is in flight is skipped, never queued. Decides
nothing about leases: a due save still has to be asked for.
"""

from rampmeter.core import phase
from rampmeter.core.messages import Plan


class Schedule:
    """One per attempt. `draw` in [0, 1) places the first save; `own_period_s` is the period where there is no plan."""

    __slots__ = ("_draw", "_num_saves", "_registered_s", "due_s", "num_skipped", "own_period_s", "started_s")

    def __init__(self, *, now_s: float, draw: float, own_period_s: float, plan: Plan | None) -> None:
        self.started_s = self._registered_s = now_s
        self.own_period_s = own_period_s
        self.num_skipped = 0
        self._draw = draw
        self._num_saves = 0
        self.due_s = self._first_due(plan.interval_s if plan else own_period_s)

    def registered(self, now_s: float) -> None:
        """The phase offset counts from here."""
        self._registered_s = now_s

    def replanned(self, before: Plan | None, plan: Plan, now_s: float) -> None:
        """The plan has changed before the next save is due: what remains is scaled."""
        if self._num_saves == 0:
            self.due_s = self._first_due(plan.interval_s)
        elif before is not None:
            old_s, new_s = self._due_follows(before), self._due_follows(plan)
            self.due_s = phase.rescaled(self.due_s, now_s, old_s, new_s)

    def save_over(self, snapshot_s: float | None, plan: Plan | None, now_s: float, *, at_once: bool) -> None:
        """The next one is due a period after the snapshot; `at_once`: an end is announced."""
        self._num_saves += 1
        period_s = plan.request_after_s if plan else self.own_period_s
        due_s = (snapshot_s or now_s) + period_s
        if plan is not None and self._num_saves == 1:
            due_s = phase.due_after_registration(
                self._registered_s, plan.phase_offset_s, plan.interval_s, now_s
            )
        if at_once:
            due_s = now_s
        while due_s < now_s:
            self.num_skipped += 1
            due_s += period_s
        self.due_s = due_s

    def _first_due(self, interval_s: float) -> float:
        return self.started_s + self._draw * min(interval_s, phase.FIRST_SAVE_WITHIN_S)

    def _due_follows(self, plan: Plan) -> float:
        """What the due time was made from: the second save's from the interval, later ones from the own period.

        A price lengthens the interval only: it must not make anybody ask before its own period is over.
        """
        return plan.interval_s if self._num_saves == 1 else plan.request_after_s
