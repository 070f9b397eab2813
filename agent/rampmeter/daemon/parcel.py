"""What training hands to the writer and what it gets back, as values; and a snapshot's way over without its classes.

Values that are no tensors travel as bytes that nobody unpacks on the way: what is defined in the training script, which
the writer never imports, can be in a state like anything else.
"""

import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rampmeter.commit import SaveRecord
from rampmeter.core.messages import FailReason, Fence
from rampmeter.daemon.arena import Placed, Wrapped

_PLAIN = (type(None), bool, int, float, str, bytes)
_LONGEST_DETAIL = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A save for the writer to make. Seconds are CLOCK_BOOTTIME and durations as in the manifest."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How it ended; `reason` None = committed."""

    reason: FailReason | None = None
    detail: str = ""

    def to_bytes(self) -> bytes:
        """Short enough for one message."""
        return pickle.dumps((self.reason and str(self.reason), self.detail[:_LONGEST_DETAIL]))

    @classmethod
    def from_bytes(cls, content: bytes) -> "Outcome":
        reason, detail = pickle.loads(content)  # noqa: S301 - from the process that we have started
        return cls(reason=None if reason is None else FailReason(reason), detail=detail)


@dataclass(frozen=True, slots=True)
class Sealed:
    """A value as the bytes that DCP would make of it."""

    content: bytes


def sealed(placed: Any) -> Any:
    """The same structure with `Sealed` for what the writer could not unpack without the classes of training."""
    if isinstance(placed, dict):
        return {key: sealed(item) for key, item in placed.items()}
    if isinstance(placed, list) and _holds_parts(placed):
        return [sealed(item) for item in placed]
    if isinstance(placed, Placed | Wrapped) or type(placed) in _PLAIN:
        return placed
    buffer = io.BytesIO()
    torch.save(placed, buffer)
    return Sealed(buffer.getvalue())


def _holds_parts(values: list[Any]) -> bool:
    """Whether DCP makes items of a list's values, or one of the list."""
    return any(
        isinstance(value, dict | Placed | Wrapped) or (isinstance(value, list) and _holds_parts(value))
        for value in values
    )
