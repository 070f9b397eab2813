"""What happens to a job's checkpoints, told to `on_event`: for metrics, demos and proofs. Values only.

Called from the agent's own threads; `now_s` is a reading of the agent's clock (CLOCK_BOOTTIME, the same for all
processes of a machine). A callback must be quick; what it raises is logged and goes no further.
"""

from dataclasses import dataclass

from rampmeter.core.messages import FailReason, PlanReason
from rampmeter.core.notice import GiveUp
from rampmeter.core.pacer import Governance, PacerState


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something happened at `now_s`."""

    now_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanged(Event):
    """The pacer moved on."""

    state: PacerState


@dataclass(frozen=True, slots=True, kw_only=True)
class RateChanged(Event):
    """What the job may use from now on: `bytes_per_s` until `until_s`; None = unthrottled or without end."""

    bytes_per_s: int | None
    until_s: float | None
    governance: Governance


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveStarted(Event):
    """The snapshot of `step` is taken."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveGivenUp(Event):
    """A save that was due is not written, or not to its end. Where its snapshot existed, SaveEnded follows.

    left_s       until the announced end; None where none was announced
    fits_bytes   how much could have been written before it; None = not told
    """

    reason: GiveUp
    left_s: float | None
    fits_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveHeldBack(Event):
    """A save that is due cannot be made now, so that nothing is asked for: it is looked at again every few seconds."""

    reason: FailReason
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveEnded(Event):
    """A save was committed (`reason` None) or was not, and why. Durations in seconds from the snapshot on."""

    step: int
    directory: str
    num_bytes: int
    stall_s: float
    lead_s: float
    write_s: float
    governance: Governance
    reason: FailReason | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreWaits(Event):
    """A restore has nothing that it may read at for a second or longer, and why, in words; each reason is told once."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRateChanged(Event):
    """What the restore may read from now on: `bytes_per_s` until `until_s`; None = unthrottled or without end.

    0 at its end, when all was read or it was given up.
    """

    bytes_per_s: int | None
    until_s: float | None
    governance: Governance


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored(Event):
    """State was loaded from a checkpoint; `skipped` says why newer ones were not."""

    step: int
    directory: str
    skipped: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBack(Event):
    """A committed checkpoint was read back from storage beside training: whole (`damage` None), or what is wrong."""

    step: int
    directory: str
    damage: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChanged(Event):
    """The coordinator tells another interval than before, or the first one, and what decided it.

    own_period_s          what the job would choose alone; it may ask from there on
    price_gpu_s_per_byte  what decided where the reason is `price`; beside it what a byte was worth to this job, and the
                          highest bid that waited, both when this was said
    """

    interval_s: float
    own_period_s: float
    reason: PlanReason
    price_gpu_s_per_byte: float
    bid_gpu_s_per_byte: float
    live_price_gpu_s_per_byte: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorHeard(Event):
    """The coordinator answers (again), or does so no more."""

    reachable: bool
    detail: str
