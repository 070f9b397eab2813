"""How a save ended, as a value: what the keeper reports and people see. Needs no torch."""

from dataclasses import dataclass

from rampmeter.core.messages import FailReason
from rampmeter.throttle import FlowCounters


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveReport:
    """How a save ended. `reason` is None exactly if it was committed; durations count from `begin`."""

    step: int
    directory: str
    num_bytes: int  # of the checkpoint; of a failed save what had left the host
    stage_s: float
    stall_s: float
    lead_s: float  # to the first byte in hand
    write_s: float  # to durable, or to the end of a failed save
    counters: FlowCounters
    committed: bool
    reason: FailReason | None

    @property
    def at_work_s(self) -> float:
        """The write time without the sleep in the bucket."""
        return max(0.0, self.write_s - self.counters.throttled_s)
