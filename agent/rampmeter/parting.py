"""The announced end of a job, told in its log: that it was announced, what follows, and what became of the last save.

Keeps when the end comes; what is saved until then is for the pacer to decide. `announced` takes no lock and logs
nothing, for it may be called inside a signal handler: whoever looks next tells.
"""

import logging

from rampmeter.core.clock import Clock
from rampmeter.core.notice import GiveUp
from rampmeter.core.units import format_duration
from rampmeter.leaving import EXIT_PREEMPTED
from rampmeter.report import SaveReport

_log = logging.getLogger("rampmeter")


class Parting:
    """One per attempt; all but `announced` under the desk's lock. `notice_s` is from the announcement to the end."""

    def __init__(self, notice_s: float, clock: Clock) -> None:
        self._notice_s = notice_s
        self._clock = clock
        self._what = ""
        self._ends_at_s: float | None = None
        self._is_told = self._is_over = False

    @property
    def is_announced(self) -> bool:
        """The job was told that it ends."""
        return self._ends_at_s is not None

    def announced(self, what: str) -> None:
        """`what` has told the job that it ends; the first time counts."""
        if self._ends_at_s is None:
            self._what = what
            self._ends_at_s = self._clock.now() + self._notice_s

    def begins(self, *, is_saving: bool) -> float | None:
        """When the job ends, if that is new; it is told then. `is_saving`: a save is being made already."""
        if self._ends_at_s is None or self._is_told:
            return None
        self._is_told = True
        plan = (
            "the save that is being made is finished"
            if is_saving
            else "one more save is made as soon as possible"
        )
        _log.warning(
            "%s: the job ends in %s; %s, then should_stop is true and exit_code is %d",
            self._what,
            format_duration(self._notice_s),
            plan,
            EXIT_PREEMPTED,
        )
        return self._ends_at_s

    def save_over(self, report: SaveReport) -> None:
        """The save for it has ended. One that was given up is told of where that is decided."""
        if self._ends_at_s is None or self._is_over:
            return
        self._is_over = True
        if report.committed:
            left_s = max(0.0, self._ends_at_s - self._clock.now())
            _log.warning(
                "step %d is saved %s before the announced end: nothing is lost but what is trained from here on",
                report.step,
                format_duration(left_s),
            )
        elif str(report.reason) not in map(str, GiveUp):
            self._tell_unsaved(f"its save failed ({report.reason})")

    def closing(self) -> None:
        """The job leaves. If nothing was said of its last save there was none."""
        if self._is_told and not self._is_over:
            self._is_over = True
            self._tell_unsaved("it left before that was saved")

    def given_up(self) -> None:
        """The last save is given up, which is told elsewhere."""
        self._is_over = True

    def _tell_unsaved(self, why: str) -> None:
        _log.warning("the announced end loses what came after the newest checkpoint: %s", why)
