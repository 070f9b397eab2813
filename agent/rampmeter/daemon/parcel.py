"""What training hands to the writer and what it gets back, as values; and a snapshot's way over without its classes.

Values that are no tensors travel as bytes that nobody unpacks on the way: what is defined in the training script, which
the writer never imports, can be in a state like anything else.
"""

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rampmeter.commit import SaveRecord
from rampmeter.core.messages import FailReason, Fence
from rampmeter.daemon.arena import Placed, Sharded, Wrapped
from rampmeter.dcp import Sealed
from rampmeter.freezing import pickled
from rampmeter.savable import blaming
from rampmeter.statekeys import LEAD, RESERVED
from rampmeter.throttle import FlowCounters
from rampmeter.together import Party

_PLAIN = (type(None), bool, int, float, str, bytes)
_LONGEST_DETAIL = 2000
_MET = b"met "


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A save for the writer to make. Seconds are CLOCK_BOOTTIME and durations as in the manifest.

    party   whose writer this is among those of a job of many ranks; None = of a job of one
    """

    number: int
    root: Path
    record: SaveRecord
    writer_class: type | None
    max_streams: int | None
    check_finite: bool
    fence: Fence | None
    begun_at_s: float
    stage_s: float
    stall_s: float
    party: Party | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How it ended; `reason` None = this writer's part is done, and what it was to commit is committed.

    is_over   False: it fails, which others should hear before the writers have said so to each other
    group     the group in which the writer stays with those of the other ranks; 0 = none
    """

    reason: FailReason | None = None
    detail: str = ""
    is_over: bool = True
    group: int = 0

    def to_bytes(self) -> bytes:
        """Short enough for one message."""
        reason = self.reason and str(self.reason)
        return pickle.dumps((reason, self.detail[:_LONGEST_DETAIL], self.is_over, self.group))

    @classmethod
    def from_bytes(cls, content: bytes) -> "Outcome":
        reason, detail, is_over, group = pickle.loads(content)  # noqa: S301 - from the process that we have started
        found = None if reason is None else FailReason(reason)
        return cls(reason=found, detail=detail, is_over=is_over, group=group)


@dataclass(frozen=True, slots=True)
class Met:
    """Training's answer to a writer whose bytes are durable: so are those of all ranks, whose flow this was."""

    flow: FlowCounters

    def to_bytes(self) -> bytes:
        """One message."""
        return _MET + pickle.dumps(self.flow)

    @classmethod
    def from_bytes(cls, content: bytes) -> "Met":
        return cls(pickle.loads(content.removeprefix(_MET)))  # noqa: S301 - from the process that has started us

    @staticmethod
    def is_in(message: bytes) -> bool:
        """Whether a message is such an answer, also where only its beginning was read."""
        return message.startswith(_MET)


def sealed_state(placed: dict[str, Any]) -> dict[str, Any]:
    """A whole snapshot, `sealed`; what only the planner reads stays as it is.

    ConfigError names what cannot be pickled.
    """
    ours = placed.get(RESERVED, {})
    lead = {LEAD: ours[LEAD]} if LEAD in ours else {}
    without = {RESERVED: {key: value for key, value in ours.items() if key != LEAD}} if ours else {}
    parts = {**placed, **without}
    with blaming(parts, pickled, cannot_be="pickled"):
        found: dict[str, Any] = sealed(parts)
    return {**found, RESERVED: {**found[RESERVED], **lead}} if ours else found


def sealed(placed: Any) -> Any:
    """The same structure with `Sealed` for what the writer could not unpack without the classes of training."""
    if isinstance(placed, dict):
        return {key: sealed(item) for key, item in placed.items()}
    if isinstance(placed, list) and _holds_parts(placed):
        return [sealed(item) for item in placed]
    if isinstance(placed, Placed | Wrapped | Sharded) or type(placed) in _PLAIN:
        return placed
    return Sealed(pickled(placed))


def _holds_parts(values: list[Any]) -> bool:
    """Whether DCP makes items of a list's values, or one of the list."""
    return any(
        isinstance(value, dict | Placed | Wrapped | Sharded)
        or (isinstance(value, list) and _holds_parts(value))
        for value in values
    )
