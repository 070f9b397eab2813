"""Whether a writer still makes progress: cut to a trickle where it makes none, revoked where that lasts.

Judged at each renewal of a lease against the other leases of the pool. If nobody moves it is storage, and nobody is
cut or revoked for it; a writer that is alone is cut, never revoked: whoever starts beside it shows which of the two it
is. Time at rate 0 is no missing progress. Must never take a slow start, a pause or a stalled pool for a hung writer.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

FLOOR_SHARE = 0.01
"""A writer that is cut keeps this share of the ceiling: with nothing it could never show progress again."""

NUM_STILL = 2
"""Renewals in a row without a byte after which a writer is cut."""

PATIENCE_S = 60.0
PATIENCE_FACTOR = 3.0
"""Revoked without a byte for max(60 s, 3 x what the rest of its bytes should have taken)."""

STILL_S = 5.0
"""... in at least this time: where rates change, renewals follow each other within milliseconds."""

VISIBLE_BYTES = 1 << 24
"""Bytes count once they have left the host, in windows of up to 16 MiB: a writer is not still before it owes one."""

WHOLE_POOL_S = 300.0
"""A writer that stands still for this long is cut even if nobody else moves: somebody else may try."""


class Verdict(StrEnum):
    """What a renewal says of the writer's progress."""

    MOVES = "moves"
    CUT = "cut"
    REVOKED = "revoked"


@dataclass(slots=True, kw_only=True)
class Progress:
    """One lease's progress, kept in its record. Times are seconds of the coordinator's clock.

    seen_s        the last renewal; moved_from_s, moved_s: the two last renewals between which bytes went
    quiet_s       time at a rate above 0 without a byte; owed_bytes: what could have been written in it
    still_s       as much of it as others wrote in; patience_s: after how much of that the lease is revoked
    """

    done_bytes: int = 0
    seen_s: float | None = None
    moved_from_s: float | None = None
    moved_s: float | None = None
    num_still: int = 0
    quiet_s: float = 0.0
    still_s: float = 0.0
    owed_bytes: int = 0
    patience_s: float = PATIENCE_S
    is_cut: bool = False

    def renewed(
        self,
        *,
        done_bytes: int,
        num_bytes: int | None,
        bytes_per_s: int,
        now_s: float,
        others: Iterable["Progress"],
    ) -> Verdict:
        """The lease is renewed.

        done_bytes    the agent's total; num_bytes: of the whole save, None = unknown
        bytes_per_s   the rate in force since the last renewal
        others        the progress of the pool's other leases that have a rate, and of what ended since the last renewal
        """
        since_s, self.seen_s = self.seen_s, now_s
        if done_bytes > self.done_bytes or since_s is None:
            self._move(done_bytes, num_bytes, bytes_per_s, since_s)
        elif bytes_per_s > 0:
            self._stand_still(bytes_per_s, since_s, list(others))
        if not self.is_cut:
            return Verdict.MOVES
        return Verdict.REVOKED if self.still_s >= self.patience_s and self.num_still else Verdict.CUT

    def _move(self, done_bytes: int, num_bytes: int | None, bytes_per_s: int, since_s: float | None) -> None:
        self.done_bytes = done_bytes
        self.moved_from_s, self.moved_s = since_s, self.seen_s
        self.num_still, self.quiet_s, self.still_s, self.owed_bytes, self.is_cut = 0, 0.0, 0.0, 0, False
        left_bytes = max(0, num_bytes - done_bytes) if num_bytes is not None else 0
        expected_s = left_bytes / bytes_per_s if bytes_per_s > 0 else 0.0
        self.patience_s = max(PATIENCE_S, PATIENCE_FACTOR * expected_s)

    def _stand_still(self, bytes_per_s: int, since_s: float, others: list["Progress"]) -> None:
        assert self.seen_s is not None
        moves = any(other.moved_since(self.moved_s, since_s) for other in others)
        if moves or not others:
            self.num_still += 1
            self.quiet_s += self.seen_s - since_s
            self.owed_bytes += int(bytes_per_s * (self.seen_s - since_s))
        if moves:
            self.still_s += self.seen_s - since_s
        long_still = self.moved_s is not None and self.seen_s - self.moved_s >= WHOLE_POOL_S
        if long_still or (
            self.num_still >= NUM_STILL and self.quiet_s >= STILL_S and self.owed_bytes >= VISIBLE_BYTES
        ):
            self.is_cut = True

    def moved_since(self, stopped_s: float | None, since_s: float) -> bool:
        """It certainly wrote after another had stopped, and was seen to after `since_s`.

        A renewal with bytes says only that they went some time after the one before.
        """
        if self.moved_s is None or self.moved_from_s is None:
            return False
        return self.moved_s >= since_s and (stopped_s is None or self.moved_from_s >= stopped_s)

    def ended(self, done_bytes: int, granted_s: float, now_s: float, *, goes_on: bool) -> None:
        """The lease is released with this total: bytes went after its last renewal, or after its grant.

        goes_on   the save began under an earlier lease and nothing was heard since: its bytes may all be older
        """
        if done_bytes > self.done_bytes and not (goes_on and self.seen_s is None):
            self.moved_from_s = granted_s if self.seen_s is None else self.seen_s
            self.moved_s = now_s

    def ended_after(self, since_s: float | None) -> bool:
        """A lease that is over says something of the time after `since_s`."""
        return self.moved_s is not None and since_s is not None and self.moved_s >= since_s

    def maximum(self, ceiling_bytes_per_s: int) -> int | None:
        """What a writer without progress may still use; None = no limit."""
        return max(1, int(FLOOR_SHARE * ceiling_bytes_per_s)) if self.is_cut else None
