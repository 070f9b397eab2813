"""A storage of a given capacity that active streams share fairly, and where each stream's time goes.

A stream is as fast as the slowest of: its lease (an upper bound, never a promise), its own CPU, its own pipe, and its
max-min share of what the storage really carries. Its time is split as an agent splits it: asleep in its bucket
(throttled), in write and sync (blocked), computing (busy). The storage knows nothing of the coordinator.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

NEARLY_DONE_S = 1e-9
"""A stream that would end within this has ended: times are floats."""


@dataclass(slots=True, kw_only=True, eq=False)
class Stream:
    """One job's bytes on their way. Rates in bytes/s, times in seconds since the first byte was in hand.

    pipe_bytes_per_s      what the job's hosts can send at most
    cpu_bytes_per_s       what its CPUs can hash and hand over at most
    allowed_bytes_per_s   its lease now
    hung                  it makes no progress, whatever it is allowed
    on_end                called when the last byte was written
    """

    num_bytes: float
    pipe_bytes_per_s: float = math.inf
    cpu_bytes_per_s: float = math.inf
    allowed_bytes_per_s: float = 0.0
    hung: bool = False
    on_end: Callable[[], None] | None = None
    done_bytes: float = 0.0
    throttled_s: float = 0.0
    blocked_s: float = 0.0
    busy_s: float = 0.0
    rate_bytes_per_s: float = 0.0
    reach_bytes_per_s: float = math.inf
    """What the storage would carry for it if nothing else held it back."""

    @property
    def is_done(self) -> bool:
        return self.done_bytes >= self.num_bytes

    @property
    def wish_bytes_per_s(self) -> float:
        """What it would write if the storage had no limit."""
        if self.hung:
            return 0.0
        return min(self.allowed_bytes_per_s, self.cpu_bytes_per_s, self.pipe_bytes_per_s)

    def advance(self, duration_s: float) -> None:
        """Let time pass at the present rate."""
        if self.hung and self.allowed_bytes_per_s > 0.0:
            self.blocked_s += duration_s
            return
        rate = self.rate_bytes_per_s
        self.done_bytes += rate * duration_s
        left_bytes = self.num_bytes - self.done_bytes
        if left_bytes <= rate * NEARLY_DONE_S:
            self.done_bytes = self.num_bytes
        busy = rate / self.cpu_bytes_per_s
        blocked = (1.0 - busy) * min(1.0, rate / self.reach_bytes_per_s) if rate else 0.0
        self.busy_s += duration_s * busy
        self.blocked_s += duration_s * blocked
        self.throttled_s += duration_s * (1.0 - busy - blocked)


class Storage:
    """Processor sharing among the open streams; call `share` after changes, before time goes on."""

    def __init__(self, capacity_bytes_per_s: float, now_s: float) -> None:
        self.capacity_bytes_per_s = capacity_bytes_per_s
        self.streams: list[Stream] = []
        self.written_bytes = 0.0
        self.changed = False
        """Shares are no longer what they should be."""
        self._at_s = now_s

    # -- changes -----------------------------------------------------------------------------------------------

    def set_capacity(self, capacity_bytes_per_s: float, now_s: float) -> None:
        """What the storage carries from now on."""
        self.advance(now_s)
        self.capacity_bytes_per_s, self.changed = capacity_bytes_per_s, True

    def open(self, stream: Stream, now_s: float) -> None:
        """The stream has its first byte in hand."""
        self.advance(now_s)
        self.streams.append(stream)
        self.changed = True

    def allow(self, stream: Stream, bytes_per_s: float, now_s: float) -> None:
        """The stream's lease is this from now on."""
        if bytes_per_s != stream.allowed_bytes_per_s:
            self.advance(now_s)
            stream.allowed_bytes_per_s, self.changed = bytes_per_s, True

    def hang(self, stream: Stream, now_s: float) -> None:
        """The stream makes no progress from now on."""
        self.advance(now_s)
        stream.hung = self.changed = True

    def close(self, stream: Stream, now_s: float) -> None:
        """The stream has ended or died; closing one that is not open changes nothing."""
        self.advance(now_s)
        if stream in self.streams:
            self.streams.remove(stream)
            stream.rate_bytes_per_s = 0.0
            self.changed = True

    # -- time --------------------------------------------------------------------------------------------------

    def advance(self, now_s: float) -> None:
        """Let time pass up to now."""
        duration_s = now_s - self._at_s
        if duration_s <= 0.0:
            return
        self._at_s = now_s
        for stream in self.streams:
            before = stream.done_bytes
            stream.advance(duration_s)
            self.written_bytes += stream.done_bytes - before

    def share(self) -> None:
        """Max-min: whoever wants less than an equal share gets what it wants, the others share the rest."""
        self.changed = False
        left, num_left = self.capacity_bytes_per_s, len(self.streams)
        for stream in sorted(self.streams, key=lambda s: s.wish_bytes_per_s):
            stream.rate_bytes_per_s = min(stream.wish_bytes_per_s, left / num_left)
            left -= stream.rate_bytes_per_s
            num_left -= 1
        equal = self.capacity_bytes_per_s / max(1, len(self.streams))
        for stream in self.streams:
            reach = max(stream.rate_bytes_per_s + max(0.0, left), equal)
            stream.reach_bytes_per_s = min(stream.pipe_bytes_per_s, reach)

    def next_end_s(self) -> float:
        """When the first stream ends if nothing changes; infinity if none will."""
        ends_s = (
            (stream.num_bytes - stream.done_bytes) / stream.rate_bytes_per_s
            for stream in self.streams
            if stream.rate_bytes_per_s > 0.0
        )
        return self._at_s + min(ends_s, default=math.inf)

    @property
    def rate_bytes_per_s(self) -> float:
        """What is written now."""
        return sum(stream.rate_bytes_per_s for stream in self.streams)

    @property
    def allowed_bytes_per_s(self) -> float:
        """What the open streams may write by their leases."""
        return sum(stream.allowed_bytes_per_s for stream in self.streams)
