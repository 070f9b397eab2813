"""Holds the ranks of a job to one read lease: each reads at its share of a rate that rank 0 hears of.

The rate goes along with the beats in which the ranks already tell each other whether they still work: no rank reads on
when these stop, none runs into a time-out while all wait for a rate, and who comes out of a beat knows that all follow
the word of the one before. The lease is asked for when it is known who verifies what, for exactly those bytes; what
each rank reads before that for itself, the metadata, is little and paid for by nobody.
"""

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from rampmeter.core.clock import Clock
from rampmeter.flow import ReadFlow
from rampmeter.ranks.rider import Rider
from rampmeter.reading.beats import RankReading, heard, numbers, weights
from rampmeter.reading.jobread import JobRead
from rampmeter.reading.pace import UNPACED, LeasedPace, Pace, Read
from rampmeter.throttle import Throttle

_USELESS = "the restore has failed on another rank"


class JobDesk(Protocol):
    """Where rank 0 says how far the restore of all ranks is."""

    def steer_read(self, num_bytes: int, flow: ReadFlow) -> None: ...

    def read_through(self) -> None: ...

    def end_read(self) -> None: ...


@contextlib.contextmanager
def rank_slot(desk: JobDesk | None, rank: int, clock: Clock, _num_bytes: int) -> Iterator[Pace]:
    """The turn of one checkpoint at being read by all ranks. `desk` is rank 0's; without one there nobody is asked."""
    try:
        yield RankPace(desk, rank, clock)
    finally:
        if desk is not None:
            desk.end_read()


class RankPace:
    """The pace of one rank in one restore."""

    def __init__(self, desk: JobDesk | None, rank: int, clock: Clock) -> None:
        self._desk = desk
        self._rank = rank
        self._clock = clock
        self._pace: Pace = UNPACED

    def reader(self, name: str, block: int) -> Read:
        return self._pace.reader(name, block)

    def guarded(self) -> AbstractContextManager[None]:
        return self._pace.guarded()

    @contextlib.contextmanager
    def among(self, loads_bytes: Sequence[int]) -> Iterator[Rider]:
        throttle = Throttle(clock=self._clock)
        self._pace = LeasedPace(throttle, loads_bytes[self._rank], lambda: None)
        flow = JobRead() if self._rank == 0 else None
        rider = _Beats(throttle, flow, self._rank, loads_bytes, self._clock)
        if flow is not None:
            self._ask(sum(loads_bytes), flow)
        yield rider
        if self._desk is not None:
            self._desk.read_through()

    def _ask(self, num_bytes: int, flow: JobRead) -> None:
        if self._desk is None:
            flow.set_rate(None)
        else:
            self._desk.steer_read(num_bytes, flow)


class _Beats:
    """Goes along with the beats of one rank. `flow` is on rank 0."""

    def __init__(
        self, throttle: Throttle, flow: JobRead | None, rank: int, loads_bytes: Sequence[int], clock: Clock
    ) -> None:
        self._throttle = throttle
        self._flow = flow
        self._clock = clock
        self._part = loads_bytes[rank] / (sum(loads_bytes) or 1)
        self._reading = RankReading(rank, weights(loads_bytes))

    def says(self) -> list[int]:
        now_s = self._clock.now()
        self._reading.enters(now_s)
        word = None if self._flow is None else self._flow.word(now_s)
        return numbers(word, self._throttle.counters(), self._part)

    def hears(self, sums: list[int]) -> None:
        word, counters = heard(sums)
        self._throttle.set_rate(*self._reading.follows(word))
        if self._flow is not None:
            self._flow.beat_over(counters)

    @property
    def failure(self) -> Exception | None:
        return None if self._flow is None else self._flow.failure

    def ends(self) -> None:
        self._throttle.abort(_USELESS)
