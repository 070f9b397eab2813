"""The cell and the words of a checkpoint that is read back beside training, under the desk's lock.

The pure `Rereading` says what may be read; here it is carried to the cell that the reading thread takes from. The end
of the job, announced or because a newer attempt took over, ends it for good.
"""

from rampmeter.core.clock import Clock
from rampmeter.core.lifecycle import Action
from rampmeter.core.messages import Kind, Renew, Request, SlotRequest
from rampmeter.core.rereading import Rereading
from rampmeter.envelope import Envelope
from rampmeter.reading.turns import LEAVING
from rampmeter.reading.words import release
from rampmeter.throttle import FlowCounters, Throttle

LOCAL_TIMES = 2.0
"""Where nobody meters it, reading one back takes so many times as long as writing one did: its storage has carried more
than that, and a checkpoint is read before its successors push it out even if only two are kept."""

LOCAL_SHORTEST_S = 1.0
"""Small ones take so many seconds, times the above."""


def local_rate(num_bytes: int, write_s: float | None) -> int:
    """Bytes/s where there is no coordinator; `write_s` is what writing one takes, None = not known."""
    return max(1, int(num_bytes / (LOCAL_TIMES * max(LOCAL_SHORTEST_S, write_s or 0.0))))


class RereadTurns:
    """One per attempt."""

    def __init__(self, rereading: Rereading, *, clock: Clock) -> None:
        self._rereading = rereading
        self._clock = clock
        self._throttle: Throttle | None = None
        self._allowed: tuple[int | None, float | None] = (0, None)
        self._counters = FlowCounters(done_bytes=0, throttled_s=0.0, blocked_s=0.0, busy_s=0.0)
        self._stopped = ""

    def begin(self) -> Throttle:
        """A cell for the one that is to be read back now."""
        self._throttle, self._allowed = Throttle(clock=self._clock), (0, None)
        if self._stopped:
            self._throttle.abort(self._stopped)
        return self._throttle

    def end(self) -> None:
        """It was read, or nobody reads on; what was counted is for the release."""
        throttle, self._throttle = self._throttle, None
        if throttle is not None:
            throttle.set_rate(None)  # nobody looks after this cell any more: nobody must wait at it
            throttle.end()
            self._counters = throttle.counters()

    def stop(self, reason: str) -> None:
        """From now on nothing is read back in this attempt; whoever reads gets LeaseLost."""
        self._stopped = reason
        if self._throttle is not None:
            self._throttle.abort(reason)

    def carry(self, now_s: float, *, leaving: bool) -> None:
        """Tell the cell what may be read now."""
        if leaving:
            self.stop(LEAVING)
        allowed = self._rereading.allowance(now_s)
        if self._throttle is not None and allowed != self._allowed:
            self._allowed = allowed
            self._throttle.set_rate(*allowed)

    def word(self, action: Action, envelope: Envelope, now_s: float) -> Request:
        """The request that stands for `action`."""
        counters = self._counters if self._throttle is None else self._throttle.counters()
        if action is Action.ASK_REREAD:
            return self._ask(envelope, counters)
        if action is Action.RENEW_REREAD:
            return self._renew(envelope, counters, now_s)
        assert self._rereading.owed is not None
        was_read = self._throttle is None and counters.done_bytes >= self._rereading.num_bytes
        return release(envelope, self._rereading.owed, counters, was_read=was_read)

    def _ask(self, envelope: Envelope, counters: FlowCounters) -> SlotRequest:
        return SlotRequest(
            **envelope,
            kind=Kind.READ,
            background=True,
            num_bytes=max(0, self._rereading.num_bytes - counters.done_bytes),
            ready_in_s=0.0,
            started=counters.done_bytes > 0,
        )

    def _renew(self, envelope: Envelope, counters: FlowCounters, now_s: float) -> Renew:
        assert self._rereading.fence is not None
        return Renew(
            **envelope,
            fence=self._rereading.fence,
            held_bytes_per_s=self._rereading.allowance(now_s)[0],
            done_bytes=counters.done_bytes,
            throttled_s=counters.throttled_s,
            blocked_s=counters.blocked_s,
            busy_s=counters.busy_s,
            num_bytes=self._rereading.num_bytes,
            kind=Kind.READ,
            background=True,
        )
