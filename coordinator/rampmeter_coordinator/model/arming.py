"""When to let a waiter get ready: as soon as its room appears within its own lead time. Simulates the pool forward.

A lease starts armed, at rate 0, so that the time from grant to first byte does not idle the storage. Who is armed too
early holds a snapshot for nothing; who is armed too late leaves the storage idle. An armed lease that is not ready
takes no bandwidth and blocks nobody who can be ready before it. Pure: figures in, a verdict out.
"""

import math
from collections.abc import Sequence

from rampmeter_coordinator.model import admission
from rampmeter_coordinator.model.admission import Writer
from rampmeter_coordinator.model.pool import PoolConfig

ARM_AHEAD_S = 1.0
AHEAD_SHARE = 0.25
"""A waiter is armed when its room appears within its lead time and a second, or a quarter of its write if that is less:
who waits with a snapshot in hand for longer than it writes has been let in too early."""


def ahead_s(newcomer: Writer) -> float:
    """How long before its room appears a waiter should be ready, in seconds."""
    return min(ARM_AHEAD_S, AHEAD_SHARE * newcomer.bytes_left / max(1, newcomer.wanted_bytes_per_s))


class Outlook:
    """The near future of one budget: those who write in order, then the waiters before the one in question."""

    def __init__(
        self, writers: Sequence[Writer], rest_bytes_per_s: int, config: PoolConfig, now_s: float
    ) -> None:
        self._writers = list(writers)
        self._rest_bytes_per_s = rest_bytes_per_s
        self._config = config
        self._now_s = now_s
        self._is_seen = True
        self._look_at_present()

    @property
    def first_end_s(self) -> float:
        """When the first of those who write now will have ended; infinity if that is not known."""
        if not self._is_seen:
            self._look_at_present()
        return self._first_end_s

    def forked(self) -> "Outlook":
        """The same for others: who comes next here does not come there."""
        return Outlook(self._writers, self._rest_bytes_per_s, self._config, self._now_s)

    def comes_next(self, writer: Writer) -> None:
        """This one has its place before all that are asked about from now on."""
        self._writers.append(writer)
        self._is_seen = writer.from_s > self._now_s and self._is_seen

    def has_room_for(self, newcomer: Writer) -> bool:
        """Whether `newcomer`, behind all others, has a rate worth a start within `ahead_s` after `from_s`.

        Room that is there now and taken before its first byte is in hand is no room. Others that can be ready only
        later than it do not come before it.
        """
        if not self._is_seen:
            self._look_at_present()
        ready_s = newcomer.from_s
        until_s = ready_s + ahead_s(newcomer)
        if self._is_level and self._first_end_s > until_s and self._free < newcomer.least_bytes_per_s:
            return False  # cheap and certain: nobody ends in time, and what is free is too little
        before = [writer for writer in self._writers if writer.from_s <= ready_s]
        bytes_left = [writer.bytes_left for writer in before]
        now_s = self._now_s
        while now_s <= until_s:
            present = [i for i, writer in enumerate(before) if writer.from_s <= now_s and bytes_left[i] > 0.0]
            *rates, own = self._rates([*(before[i] for i in present), newcomer])
            ends_s = [
                now_s + bytes_left[i] / rate if rate else math.inf
                for i, rate in zip(present, rates, strict=True)
            ]
            next_s = min([writer.from_s for writer in before if writer.from_s > now_s], default=math.inf)
            if now_s < ready_s and all(
                rate == before[i].wanted_bytes_per_s for i, rate in zip(present, rates, strict=True)
            ):
                next_s = min(next_s, ready_s)  # whoever ends before that changes nobody's rate
            else:
                next_s = min([next_s, *ends_s])
            if own > 0 and next_s > ready_s:
                return True
            if next_s == math.inf:
                return False
            for i, rate, end_s in zip(present, rates, ends_s, strict=True):
                # who has ended by then is set to 0: a last byte may take less than the clock can tell apart
                bytes_left[i] = 0.0 if end_s <= next_s else bytes_left[i] - rate * (next_s - now_s)
            now_s = next_s
        return False

    def _rates(self, writers: Sequence[Writer]) -> list[int]:
        return [rate for rate, _ in admission.fill(writers, self._rest_bytes_per_s, self._config)]

    def _look_at_present(self) -> None:
        self._is_seen = True
        present = [writer for writer in self._writers if writer.from_s <= self._now_s]
        self._free, self._first_end_s, last = self._rest_bytes_per_s, math.inf, None
        for writer, rate in zip(present, self._rates(present), strict=True):
            if rate:
                self._free -= rate
                self._first_end_s = min(self._first_end_s, self._now_s + writer.bytes_left / rate)
                last = writer
        self._is_level = last is not None and self._nobody_comes_before(last)

    def _nobody_comes_before(self, last: Writer) -> bool:
        """Whether those who write now keep their rates until one of them ends: who comes later stands behind them."""
        for writer in self._writers:
            if writer is last:
                return True
            if writer.from_s > self._now_s:
                return False
        return True
