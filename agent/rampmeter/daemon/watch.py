"""When a writer in another process counts as lost. Pure.

Four limits, each counted only over time in which somebody looked: a trainer that was stopped itself blames nobody.
"""

from dataclasses import dataclass

from rampmeter.core.messages import FailReason
from rampmeter.daemon.tidings import Stage, Tidings
from rampmeter.ranks.group import COLLECTIVE_LIMIT_S

SILENT_S = 10.0
"""Without a beat, which comes each 20 ms whatever the storage does: the process is stopped or hangs."""

STANDSTILL_S = 120.0
"""With a rate and nothing done: the storage hangs. Longer than the minute in which an NFS client still tries itself."""

OBEDIENCE_S = 10.0
"""After an abort: a writer stops within one chunk, unless it is stuck in the storage."""

TOGETHER_S = COLLECTIVE_LIMIT_S
"""So much longer for a writer that may be in a collective with those of other ranks: that ends by itself."""

_LONGEST_GAP_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why the writer must be ended."""

    reason: FailReason
    detail: str


class Watch:
    """Over one save. `look` is to be called each 20 ms."""

    def __init__(self, now_s: float, *, is_alone: bool = True) -> None:
        self._obedience_s = OBEDIENCE_S if is_alone else OBEDIENCE_S + TOGETHER_S
        self._looked_s = now_s
        self._last: Tidings | None = None
        self._silent_s = 0.0
        self._still_s = 0.0
        self._aborted_s = 0.0

    def look(self, now_s: float, tidings: Tidings | None, *, has_rate: bool, aborted: bool) -> Trouble | None:
        """What is wrong with the writer, if anything."""
        gap_s = min(now_s - self._looked_s, _LONGEST_GAP_S)
        self._looked_s = now_s
        self._silent_s = 0.0 if _beat(tidings) != _beat(self._last) else self._silent_s + gap_s
        if _progress(tidings) != _progress(self._last):
            self._still_s = 0.0
        elif has_rate and not _waits(tidings):
            self._still_s += gap_s
        self._aborted_s = self._aborted_s + gap_s if aborted else 0.0
        self._last = tidings
        return self._trouble()

    def _trouble(self) -> Trouble | None:
        if self._silent_s >= SILENT_S:
            return Trouble(reason=FailReason.WRITER_LOST, detail=f"gave no sign of life for {SILENT_S:.0f} s")
        if self._still_s >= STANDSTILL_S:
            detail = f"wrote nothing for {STANDSTILL_S:.0f} s although it may"
            return Trouble(reason=FailReason.NO_PROGRESS, detail=detail)
        if self._aborted_s >= self._obedience_s:
            detail = f"did not stop within {self._obedience_s:.0f} s: it hangs in the storage"
            return Trouble(reason=FailReason.NO_PROGRESS, detail=detail)
        return None


def _beat(tidings: Tidings | None) -> int | None:
    return None if tidings is None else tidings.beat


def _waits(tidings: Tidings | None) -> bool:
    """For the other ranks, whom their own trainers watch."""
    return tidings is not None and tidings.stage is Stage.DURABLE


def _progress(tidings: Tidings | None) -> tuple[int, int] | None:
    return None if tidings is None else (tidings.stage, tidings.counters.done_bytes)
