"""What steers the writing of a save or a restore, as its protocol: one throttle, or those of all ranks of a job."""

from dataclasses import dataclass
from typing import Protocol

from rampmeter.core.messages import Fence
from rampmeter.throttle import FlowCounters


class Flow(Protocol):
    """Of one save. All methods may be called from any thread and wait for nobody."""

    def set_rate(self, bytes_per_s: int | None, deadline_s: float | None = None) -> None:
        """Allow so much from now on: None = unthrottled, 0 = paused; past the deadline the rate is 0."""

    def abort(self, reason: str) -> None:
        """Let nothing more out. The first reason stands."""

    def counters(self) -> FlowCounters:
        """What was written so far, and where the time went."""

    @property
    def is_followed(self) -> bool:
        """Whether every writer obeys the newest rate by now."""


class ReadFlow(Flow, Protocol):
    """Of one restore."""

    def end(self) -> None:
        """All was read, or nothing more will be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """What a save may begin with: its lease, and how many writers that allows inside the job (None = any)."""

    fence: Fence | None
    max_streams: int | None
