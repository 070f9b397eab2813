"""What one process writes or reads in the adversarial world: how far it is, how fast it goes, where its time goes."""

import math
from dataclasses import dataclass, field

from rampmeter.core.messages import Kind

DONE_BYTES = 0.5


@dataclass(slots=True, kw_only=True)
class Job:
    """What the attempts of one job have in common."""

    uid: str
    num_bytes: int
    max_bytes_per_s: int | None
    lead_s: float
    tenant: str | None = None
    newest_claim: int = 0
    claimed_s: dict[int, float] = field(default_factory=dict)
    saved_s: list[float] = field(default_factory=list)


class Save:
    """The save that goes on, or the next one. A job that comes back reads first. Times are of the process's clock."""

    def __init__(self, kind: Kind, num_bytes: int, lead_s: float, now_s: float) -> None:
        self.kind, self.active = kind, False
        self.done_bytes = 0.0
        self.started_s = self._advanced_s = now_s
        self.byte_in_hand_s = math.inf
        self.spent = {"throttled_s": 0.0, "blocked_s": 0.0, "busy_s": 0.0}
        self._num_bytes, self._lead_s = num_bytes, lead_s
        self._pace, self._spent_as = 0.0, "throttled_s"

    def begin(self, now_s: float) -> None:
        """The snapshot is taken; the first byte comes after the lead time."""
        self.active, self.done_bytes, self.started_s = True, 0.0, now_s
        self.byte_in_hand_s = now_s + self._lead_s
        self.spent = dict.fromkeys(self.spent, 0.0)

    def give_up(self) -> None:
        """Nothing of it is kept."""
        self.active = False

    def in_hand(self, now_s: float) -> bool:
        """Whether its first byte can be written."""
        return self.active and now_s >= self.byte_in_hand_s

    def advance(self, now_s: float) -> bool:
        """Write on at the pace that was set; True if the last byte is written by now."""
        since_s, self._advanced_s = max(self._advanced_s, self.byte_in_hand_s), now_s
        if self.active and now_s > since_s:
            self.done_bytes = min(self.done_bytes + (now_s - since_s) * self._pace, self._num_bytes)
            self.spent[self._spent_as] += now_s - since_s
        if not self.active or self.done_bytes < self._num_bytes - DONE_BYTES:
            return False
        self.active = False
        return True

    def go_on(self, rate: int, most: int | None, storage_share: float, *, hung: bool) -> None:
        """From now on it may write at `rate`; what becomes of that depends on the writer and on storage."""
        own = min(rate, most or 10**9)
        if hung or storage_share < 1.0:
            self._pace, self._spent_as = 0.0 if hung else own * storage_share, "blocked_s"
        else:
            self._pace, self._spent_as = float(own), "busy_s" if own < rate else "throttled_s"

    def ends_s(self, now_s: float) -> float:
        """When the last byte will be written at this pace."""
        if not self.active or not self._pace:
            return math.inf
        return max(now_s, self.byte_in_hand_s) + (self._num_bytes - self.done_bytes) / self._pace
