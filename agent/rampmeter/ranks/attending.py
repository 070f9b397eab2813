"""One rank's share of a save, as its flush thread sees it: wait for the others, say how far it is, fail together.

Raises RankFailed, naming the rank, as soon as any rank has failed. Threads meet here
under the lock of the team; nothing is written to or read from a store.
"""

import threading
from collections.abc import Callable

from rampmeter.core.errors import LeaseLost, RankFailed
from rampmeter.core.messages import FailReason
from rampmeter.failing import reason_of
from rampmeter.ranks.meeting import Attendance, Failure
from rampmeter.ranks.member import Member
from rampmeter.ranks.rates import RankRate
from rampmeter.ranks.words import Stage
from rampmeter.throttle import FlowCounters, Throttle


class RankSave:
    """Made by `Team.begin_save`. `hurry` has the news told at once."""

    def __init__(
        self,
        member: Member,
        attendance: Attendance,
        throttle: Throttle,
        *,
        changed: threading.Condition,
        hurry: Callable[[], None],
    ) -> None:
        self.is_over = threading.Event()
        self._member = member
        self._attendance = attendance
        self._throttle = throttle
        self._changed = changed
        self._hurry = hurry
        self._given = 0  # the newest version that the writer was told
        self._applied = 0
        self._has_failed = False

    # -- for the flush thread ----------------------------------------------------------------------------------

    def begin(self) -> None:
        """This rank is ready to write; return once all are, with a snapshot of this step.

        Then it returns, whatever else was said since: the log says the same to all, so either all go on to the first
        collective or none does.
        """
        with self._changed:
            if self._attendance.stage is Stage.JOINED:
                self._attendance.stage = Stage.HOLDING
        self._hurry()
        self._wait(lambda: self._attendance.is_open, even_if_failed=True)

    def ready(self, planned_bytes: int) -> None:
        """This rank is going to write so many bytes; it may do so once all have said this."""
        self._come_to(Stage.READY, planned_bytes)

    def done(self) -> None:
        """All bytes of this rank are durable; return once those of all ranks are."""
        self.arrived()
        self._wait(lambda: self._attendance.is_met)

    def arrived(self) -> None:
        """All bytes of this rank are durable."""
        self._come_to(Stage.DONE, self._attendance.planned_bytes or 0)

    @property
    def has_met(self) -> bool:
        """The bytes of all ranks are durable."""
        with self._changed:
            return self._attendance.is_met

    @property
    def failed_by(self) -> RankFailed | None:
        """Which rank made the save fail, and why; None if none did."""
        failure = self.failure
        return None if failure is None else _failed(failure)

    def failed(self, error: BaseException) -> None:
        """This rank has failed: before all have met, the save fails on all ranks, which hear it at once."""
        with self._changed:
            self._fail(error)
        self._hurry()

    def end(self, error: BaseException | None, *, needs_group: bool = False) -> None:
        """The save is over here. With an error before all have met it fails on all ranks.

        needs_group   a collective failed or timed out, not what a rank did between them
        """
        with self._changed:
            if error is not None:
                self._fail(error)
            self._attendance.stage = Stage.ENDED
            self._attendance.needs_group = needs_group
        self.is_over.set()
        self._hurry()

    def cause_of(self, error: BaseException) -> BaseException:
        """What made this rank stop with `error`: another rank's failure, where its writer was only told to stop."""
        failure = self.failure
        is_told = isinstance(error, LeaseLost) and str(error) == FailReason.RANK_FAILED
        return error if failure is None or not is_told else _failed(failure)

    @property
    def failure(self) -> Failure | None:
        """Who made the save fail; None if nobody did."""
        with self._changed:
            return self._attendance.failure

    def _fail(self, error: BaseException) -> None:
        if not self._attendance.is_settled and not self._has_failed:
            self._has_failed = True
            why = f"{type(error).__name__}: {error}"
            self._member.fail(self._attendance.number, why, reason_of(error))

    def _come_to(self, stage: Stage, planned_bytes: int) -> None:
        with self._changed:
            self._attendance.stage, self._attendance.planned_bytes = stage, planned_bytes
        self._hurry()

    def _wait(self, has_come: Callable[[], bool], *, even_if_failed: bool = False) -> None:
        with self._changed:
            self._changed.wait_for(lambda: has_come() or self._attendance.failure is not None)
            failure = self._attendance.failure
            goes_on = even_if_failed and has_come()
        if failure is not None and not goes_on:
            raise _failed(failure)

    # -- for the team, under its lock --------------------------------------------------------------------------

    @property
    def number(self) -> int:
        """The save's number."""
        return self._attendance.number

    @property
    def planned_bytes(self) -> int | None:
        """What this rank is going to write; None before it knows."""
        return self._attendance.planned_bytes

    @property
    def applied(self) -> int:
        """The version of the rate that the writer has; 0 = none yet. One in another process has it a moment later."""
        if self._throttle.is_followed:
            self._applied = self._given
        return self._applied

    @property
    def is_beginning(self) -> bool:
        """Not all ranks are there yet: what comes next is wanted at once."""
        is_at_start = self._attendance.stage in (Stage.JOINED, Stage.HOLDING)
        return self._attendance.failure is None and is_at_start

    @property
    def wants_rate(self) -> bool:
        """It has bytes to write and has not heard yet how fast."""
        return self._attendance.failure is None and self._attendance.stage is Stage.READY and self._given == 0

    def flow(self) -> FlowCounters:
        """What the writer has done."""
        return self._throttle.counters()

    def follow(self, rate: RankRate) -> None:
        """This is what may be written from now on."""
        if not self.is_over.is_set():
            self._throttle.set_rate(rate.bytes_per_s, rate.until_s)
            self._given = rate.version

    def stop_if_failed(self) -> None:
        """Nothing more is written once a rank has failed."""
        if self._attendance.failure is not None:
            self._throttle.abort(FailReason.RANK_FAILED)


def _failed(failure: Failure) -> RankFailed:
    who = f"rank {failure.rank} "
    why = failure.why if failure.why.startswith(who) else f"{who}failed: {failure.why}"
    return RankFailed(why, reason=failure.reason)
