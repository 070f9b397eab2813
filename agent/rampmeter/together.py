"""What makes a save of many ranks one save: which rank this is, what it shares with the others, and its course.

Says how a saver takes part; how the ranks find each other is in `ranks`. Decides nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from rampmeter.core.errors import RankFailed
from rampmeter.core.messages import FailReason
from rampmeter.course import Course
from rampmeter.layout import StepName
from rampmeter.throttle import FlowCounters, Throttle


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """Which of the ranks of a job this process is. `group` gives what its flush runs collectives in, None = alone."""

    number: int = 0
    num_ranks: int = 1
    group: Callable[[], torch.distributed.ProcessGroup | None] = lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """The writer processes of all ranks, of which one is this rank's.

    group   a number that no group of writers had before; None = the group in which they all are
    host, port   of the store in which they find each other
    """

    rank: int
    num_ranks: int
    group: int | None
    host: str
    port: int


class Joined(Course, Protocol):
    """A save that all ranks make together, as this rank takes part in it.

    `arrived` and `has_met` are `done` for whoever must not wait in it.
    """

    def arrived(self) -> None:
        """All bytes of this rank are durable."""

    @property
    def has_met(self) -> bool:
        """Those of all ranks are."""

    @property
    def failed_by(self) -> RankFailed | None:
        """Which rank made it fail, this one or another; None if none did."""

    def cause_of(self, error: BaseException) -> BaseException:
        """What made this rank stop with `error`."""

    def end(self, error: BaseException | None, *, needs_group: bool) -> None:
        """It is over here; `needs_group`: a collective failed, so that the next save needs a new group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """What a save shares with the other ranks.

    name    of the checkpoint
    join    called once this rank holds its snapshot
    party   of the writer processes that make it; None = each rank writes in a thread
    cannot  called instead if it has none: why, and the word for it
    flow    of all ranks
    """

    name: StepName
    join: Callable[[], Joined]
    cannot: Callable[[str, FailReason], None]
    flow: Callable[[], FlowCounters]
    party: Party | None = None


class CourseTogether:
    """The course of a save that is joined when its snapshot is taken. `on_failed` hears at once of any failure."""

    def __init__(
        self,
        *,
        joined: Callable[[], Joined | None],
        throttle: Throttle,
        on_failed: Callable[[BaseException], None],
    ) -> None:
        self.is_waiting = False
        """For the other ranks."""
        self._find_joined = joined
        self._throttle = throttle
        self._on_failed = on_failed

    def begin(self) -> None:
        """Return once all ranks hold a snapshot."""
        self.is_waiting = True
        try:
            self._joined.begin()
        except BaseException as error:
            self._on_failed(error)
            raise
        self.is_waiting = False

    def ready(self, planned_bytes: int) -> None:
        """Say what this rank is going to write."""
        self._joined.ready(planned_bytes)

    def done(self) -> None:
        """Return once all bytes of all ranks are durable; the wait for the others is no time of this flush."""
        self._throttle.end()
        self.is_waiting = True  # up to the end: what all say to each other in the commit follows
        self._joined.done()

    # -- the same for a thread that follows a writer process, and waits nowhere else --------------------------------

    def arrived(self) -> None:
        """Say that all bytes of this rank are durable."""
        self.is_waiting = True
        self._joined.arrived()

    @property
    def has_met(self) -> bool:
        """Those of all ranks are."""
        return self._joined.has_met

    def heed(self) -> None:
        """Of a rank that has failed the saver hears at once, whatever the writer is still waiting for."""
        error = self._joined.failed_by
        if error is not None:
            self._on_failed(error)

    def failed(self, error: BaseException) -> None:
        """Say so to the others."""
        self._joined.failed(error)
        self._on_failed(self._joined.cause_of(error))

    @property
    def _joined(self) -> Joined:
        joined = self._find_joined()
        assert joined is not None
        return joined
