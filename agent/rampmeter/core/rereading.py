"""The lease of a checkpoint that is read back beside training: when to ask, what may be read now. Pure.

Nobody waits for it. So it gives way to whatever else its job does: as soon as a save is due, a restore begins or the
end is announced, it reads nothing more and gives its lease back; when that is over it asks again and goes on where it
was. It reads with a lease or, where there is no coordinator, at a modest rate of its own; with a coordinator that is
silent it reads nothing.
"""

import math

from rampmeter.core.leaseclock import LeaseClock
from rampmeter.core.lifecycle import Action
from rampmeter.core.messages import AnyAnswer, Fence, Gone, Grant, Wait
from rampmeter.core.reading import RELEASE_TRIES_S


class Rereading:
    """One per attempt. `local`: there is no coordinator."""

    def __init__(self, *, local: bool) -> None:
        self.is_wanted = False
        self.num_bytes = 0
        self.owed: Fence | None = None
        """The lease that is to be given back."""
        self._local = local
        self._local_bytes_per_s = 0
        self._gives_way = False
        self._lease_clock = LeaseClock()
        self._retry_at_s = -math.inf
        self._release_by_s = 0.0

    def begin(self, num_bytes: int, local_bytes_per_s: int) -> None:
        """So many bytes are to be read back; where nobody meters them, at `local_bytes_per_s`."""
        self.is_wanted, self.num_bytes = True, num_bytes
        self._local_bytes_per_s, self._retry_at_s = local_bytes_per_s, -math.inf

    def end(self, now_s: float) -> None:
        """Nothing more is to be read."""
        self.is_wanted = False
        self._give_back(now_s)

    def forget(self) -> None:
        """Something urgent is to be said first: that says, too, that no lease is held any more."""
        self._lease_clock.dropped()
        self.is_wanted, self.owed = False, None

    def tick(self, now_s: float, *, gives_way: bool) -> None:
        """Time has passed. `gives_way`: the job has something else to do."""
        self._gives_way = gives_way
        if self.owed is not None and now_s >= self._release_by_s:
            self.owed = None
        if self._lease_clock.lapsed(now_s):
            self._lease_clock.dropped()
        if gives_way:
            self._give_back(now_s)
            self._retry_at_s = -math.inf

    def _give_back(self, now_s: float) -> None:
        fence = self.fence
        if fence is not None:
            self._owe(fence, now_s)
        self._lease_clock.dropped()

    def _owe(self, fence: Fence, now_s: float) -> None:
        self.owed, self._release_by_s = fence, now_s + RELEASE_TRIES_S

    # -- what to do --------------------------------------------------------------------------------------------

    @property
    def fence(self) -> Fence | None:
        """The fence of the lease that is held."""
        return self._lease_clock.fence

    @property
    def _may_read(self) -> bool:
        return self.is_wanted and not self._gives_way

    def next_action(self, now_s: float) -> Action:
        """What to say now. Call `tick` first."""
        if self.owed is not None:
            return Action.RELEASE_REREAD
        if not self._may_read or self._local:
            return Action.NOTHING
        if self.fence is not None:
            return Action.RENEW_REREAD
        return Action.ASK_REREAD if now_s >= self._retry_at_s else Action.NOTHING

    def allowance(self, now_s: float) -> tuple[int, float | None]:
        """Bytes per second, and until when; None = without end."""
        if self._may_read and self._local:
            return self._local_bytes_per_s, None
        if not self._may_read or self.fence is None:
            return 0, None
        held = self._lease_clock.allowance(now_s)
        return held.bytes_per_s, held.until_s

    def changes(self) -> tuple[float, ...]:
        """The times at which something changes by itself."""
        return (self._retry_at_s, *self._lease_clock.changes()) if self._may_read else ()

    # -- what the coordinator says -----------------------------------------------------------------------------

    def answered(self, answer: AnyAnswer, first_sent_s: float, now_s: float) -> None:
        """Apply the answer to one of its own requests."""
        if isinstance(answer, Grant) and not self._may_read:
            self._owe(answer.fence, now_s)  # nobody wants it any more
        elif isinstance(answer, Grant):
            self._lease_clock.granted(answer, first_sent_s)
        elif isinstance(answer, Gone):
            self._lease_clock.dropped()
        elif isinstance(answer, Wait):
            self._retry_at_s = now_s + answer.retry_after_s

    def released(self) -> None:
        """What was owed is given back."""
        self.owed = None
