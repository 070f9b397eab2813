"""How far this machine's clock is from the leader's, learned while standing by; no wall clock is asked.

The leader's lease carries its clock's reading at the moment it was sent. Whoever sees it later has the offset from
above: own time now - reading = D + delay >= D. From below, because a lease that is renewed each second and seen each
quarter of one is never old by more than MAX_DELAY_S. The largest of the recent differences bounds D from above also
where a machine was paused meanwhile, which moves D.
"""

from collections import deque

from rampmeter_coordinator.model.shifting import ClockOffset
from rampmeter_coordinator.store.protocol import Candidate

MAX_DELAY_S = 5.0
"""A renewal may be on its way for as long as a lease (3 s) at most, or it does not make its sender lead."""

_MAX_GAP_S = 1.0
"""A reading first seen after a longer pause may be of any age: the store may have been away."""

_NUM_READINGS = 10
_LEAST_READINGS = 3


class ClockSamples:
    """The newest readings of one leader's clock. A new clock (boot id) starts anew."""

    def __init__(self) -> None:
        self._boot_id = ""
        self._reading_s: float | None = None
        self._seen_s = 0.0
        self._differences: deque[float] = deque(maxlen=_NUM_READINGS)

    def note(self, leader: Candidate, seen_s: float) -> None:
        """The leader's lease as it was at `seen_s` of the own clock."""
        gap_s, self._seen_s = seen_s - self._seen_s, seen_s
        if leader.boot_id != self._boot_id:
            self._boot_id, self._reading_s = leader.boot_id, None
            self._differences.clear()
        elif leader.now_s != self._reading_s and gap_s <= _MAX_GAP_S:
            self._differences.append(seen_s - leader.now_s)
        self._reading_s = leader.now_s

    def offset_of(self, boot_id: str) -> ClockOffset | None:
        """The offset of that clock; None if it was not watched for long enough."""
        if boot_id in ("unknown", "") or boot_id != self._boot_id or len(self._differences) < _LEAST_READINGS:
            return None
        return ClockOffset(earlier_s=min(self._differences) - MAX_DELAY_S, later_s=max(self._differences))
