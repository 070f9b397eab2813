"""Training's side of one save that a writer process makes: follows it in its cell, and meets the other ranks for it.

Waits for the writer alone. What the other ranks must hear is said as soon as it is seen, and what they say goes over
at once, since a writer that waits for nothing else hears of their failure only here.
"""

from collections.abc import Callable

from rampmeter.core.clock import Clock
from rampmeter.core.errors import CommitError, LeaseLost
from rampmeter.core.messages import FailReason
from rampmeter.daemon.flow import RemoteFlow
from rampmeter.daemon.hired import HiredWriter
from rampmeter.daemon.parcel import Met, Outcome
from rampmeter.daemon.tidings import LOOK_S, Stage, Tidings
from rampmeter.daemon.watch import Trouble, Watch
from rampmeter.throttle import FlowCounters, Throttle
from rampmeter.together import CourseTogether


class Hanging(Exception):
    """The writer must be ended."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.detail)
        self.trouble = trouble


class Company:
    """The other ranks of the job, for one save of a writer."""

    def __init__(self, course: CourseTogether, job_flow: Callable[[], FlowCounters]) -> None:
        self._course = course
        self._job_flow = job_flow
        self._stage = Stage.TAKEN
        self._has_met = False

    def look(self, writer: HiredWriter, tidings: Tidings | None) -> None:
        """Pass on what is new on either side. WriterLost if the writer has ended."""
        self._course.heed()
        if tidings is None:
            return
        before, self._stage = self._stage, max(self._stage, tidings.stage)
        if before < Stage.READY <= self._stage:
            self._course.ready(tidings.share_bytes)
        if before < Stage.DURABLE <= self._stage:
            self._course.arrived()
        if self._stage >= Stage.DURABLE and not self._has_met and self._course.has_met:
            self._has_met = True
            writer.go_on(Met(self._job_flow()))

    def failed(self, error: BaseException) -> None:
        """The writer of this rank has failed, or is lost."""
        self._course.failed(error)


class Following:
    """One save. `company` None = the job has one rank."""

    def __init__(
        self,
        writer: HiredWriter,
        flow: RemoteFlow,
        throttle: Throttle,
        *,
        on_first_byte: Callable[[int], None],
        company: Company | None,
        clock: Clock,
    ) -> None:
        self._writer = writer
        self._flow = flow
        self._throttle = throttle
        self._on_first_byte: Callable[[int], None] | None = on_first_byte
        self._company = company
        self._clock = clock
        self._watch = Watch(clock.now(), is_alone=company is None)

    def to_its_end(self) -> Outcome:
        """How it has ended. WriterLost if the process has, Hanging if it must."""
        while True:
            outcome = self._writer.outcome(LOOK_S)
            tidings = self._flow.look()
            self._note_first_byte(tidings)
            if outcome is not None and outcome.is_over:
                return outcome
            if self._company is not None:
                if outcome is not None:
                    self._company.failed(error_of(outcome))
                self._company.look(self._writer, tidings)
            self._require_life(tidings)

    def _note_first_byte(self, tidings: Tidings | None) -> None:
        if tidings is not None and tidings.stage >= Stage.WRITING and self._on_first_byte is not None:
            tell, self._on_first_byte = self._on_first_byte, None
            tell(tidings.planned_bytes)

    def _require_life(self, tidings: Tidings | None) -> None:
        now_s = self._clock.now()
        has_rate, is_aborted = self._flow.has_rate(now_s), self._throttle.abort_reason is not None
        trouble = self._watch.look(now_s, tidings, has_rate=has_rate, aborted=is_aborted)
        if trouble is not None:
            raise Hanging(trouble)


def error_of(outcome: Outcome) -> CommitError | LeaseLost:
    """What stopped the writer, as the flush thread would have raised it here."""
    assert outcome.reason is not None
    if outcome.reason is FailReason.RANK_FAILED and outcome.detail == FailReason.RANK_FAILED:
        return LeaseLost(FailReason.RANK_FAILED)  # it was told to stop: by whom is known here
    return CommitError(outcome.detail, reason=outcome.reason)
