"""What is known of a save that is in flight: who it is for, how far it is, and how it ended. Decides nothing."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from rampmeter.core.clock import Clock
from rampmeter.core.errors import LeaseLost
from rampmeter.core.messages import FailReason, Fence
from rampmeter.course import Alone, Course
from rampmeter.failing import reason_of
from rampmeter.layout import StepName
from rampmeter.manifest import Manifest
from rampmeter.report import SaveReport
from rampmeter.throttle import FlowCounters, Throttle
from rampmeter.together import CourseTogether, Joined, Together


@dataclass(slots=True, kw_only=True)
class Save:
    """One save. The training thread writes the durations of `begin`, the flush thread all else."""

    name: StepName
    throttle: Throttle
    on_first_byte: Callable[[int], None]
    on_end: Callable[[SaveReport], None]
    fence: Fence | None
    max_streams: int | None
    together: Together | None
    course: Course = field(default_factory=Alone)
    joined: Joined | None = None
    begun_at_s: float
    stage_s: float = 0.0
    stall_s: float = 0.0
    lead_s: float = 0.0
    begun: threading.Event = field(default_factory=threading.Event)  # `begin` has noted its durations
    manifest: Manifest | None = None
    report: SaveReport | None = None
    result: "Future[SaveReport]" = field(default_factory=Future)

    @property
    def aborted_for(self) -> FailReason | None:
        """Why this rank was told to stop, if it was told so for the whole save."""
        reason = self.throttle.abort_reason
        return None if reason in (None, FailReason.RANK_FAILED) else reason_of(LeaseLost(str(reason)))

    @property
    def uses_group(self) -> bool:
        """Whether it needs the process group of this process: writer processes have one of their own."""
        return self.together is not None and self.together.party is None

    def counters(self) -> FlowCounters:
        """Of the whole job."""
        return self.throttle.counters() if self.together is None else self.together.flow()

    def pulse(self, clock: Clock) -> FlowCounters:
        """What shows that the flush goes on. A wait for other ranks has its own limits, and is no standing still."""
        counters = self.throttle.counters()
        is_waiting = isinstance(self.course, CourseTogether) and self.course.is_waiting
        return replace(counters, busy_s=clock.now()) if is_waiting else counters

    def as_report(self, reason: FailReason | None, now_s: float) -> SaveReport:
        """It ends now; `reason` None = committed."""
        counters = self.counters()
        return SaveReport(
            step=self.name.step,
            directory=str(self.name),
            num_bytes=counters.done_bytes if self.manifest is None else self.manifest.total_bytes,
            stage_s=self.stage_s,
            stall_s=self.stall_s,
            lead_s=self.lead_s,
            write_s=now_s - self.begun_at_s,
            counters=counters,
            committed=reason is None,
            reason=reason,
        )
