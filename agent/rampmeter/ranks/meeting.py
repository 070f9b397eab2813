"""Where ranks meet in a save: before the first byte, and before the collective in which it becomes a checkpoint.

All begin once each holds a snapshot of the same step, and go on once the bytes of each are durable; so nobody enters a
collective that another rank is long from. The first failure in the log is the one of all ranks: they stop within one
chunk. Pure: no thread, no store, no clock. Decides nothing about rates.
"""

from dataclasses import dataclass

from rampmeter.core.messages import FailReason
from rampmeter.ranks.words import Event, EventKind, Post, Share, Stage
from rampmeter.throttle import FlowCounters

_DURABLE = frozenset({Stage.DONE, Stage.ENDED})  # whoever ends without it fails the save first
_PLANNED = frozenset({Stage.READY}) | _DURABLE
_PRESENT = frozenset({Stage.HOLDING}) | _PLANNED


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Which rank made a save fail, why, and the word for it."""

    rank: int
    why: str
    reason: FailReason


class Attendance:
    """One rank in the save `number`: what it says of itself, and what it has heard of all."""

    def __init__(self, *, number: int, step: int, stage: Stage = Stage.HOLDING) -> None:
        self.number = number
        self.failure: Failure | None = None
        self.is_open = False
        self.is_met = False
        self.needs_group = False
        self.stage = stage
        self.planned_bytes: int | None = None
        self._step = step

    def heard(self, event: Event) -> None:
        """Read an event of this save. After a failure nothing else counts, and after all have met no failure."""
        if event.number != self.number or self.failure is not None or self.is_met:
            return
        if event.kind is EventKind.OPENED:
            self.is_open = True
        elif event.kind is EventKind.MET:
            self.is_met = True
        elif event.kind is EventKind.FAILED:
            self.failure = Failure(rank=event.rank, why=event.detail, reason=event.reason)

    @property
    def is_settled(self) -> bool:
        """All have met, or one has failed."""
        return self.is_met or self.failure is not None

    def share(self, flow: FlowCounters) -> Share:
        """What to tell the others of it."""
        return Share(
            number=self.number,
            stage=self.stage,
            step=self._step,
            planned_bytes=self.planned_bytes,
            done_bytes=flow.done_bytes,
            throttled_s=flow.throttled_s,
            blocked_s=flow.blocked_s,
            busy_s=flow.busy_s,
        )


class Gathering:
    """Rank 0: all shares of the save `number`."""

    def __init__(self, *, number: int, num_ranks: int) -> None:
        self.number = number
        self._num_ranks = num_ranks
        self._shares: dict[int, Share] = {}
        self._applied: dict[int, int] = {}
        self._is_open = False
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """All have met, or one has failed."""
        return self._is_over

    def posted(self, rank: int, post: Post) -> None:
        """A rank's newest post; one of another save says nothing."""
        if post.share.number == self.number:
            self._shares[rank] = post.share
            self._applied[rank] = post.applied

    def heard(self, event: Event) -> None:
        """Read an event of this save."""
        if event.number != self.number:
            return
        self._is_open |= event.kind is EventKind.OPENED
        self._is_over |= event.kind in (EventKind.MET, EventKind.FAILED)

    def next_event(self, absent: dict[int, str]) -> Event | None:
        """What to say in the log; None as long as nothing is to be said. `absent`: who is not there, and why."""
        if self._is_over:
            return None
        for rank, why in absent.items():
            if self._stage(rank) not in _DURABLE:
                return self._fails(rank, f"rank {rank} {why}")
        if not self._is_open:
            return self._opening()
        if self._all_in(_DURABLE):
            return Event(kind=EventKind.MET, number=self.number)
        return None

    @property
    def total_bytes(self) -> int | None:
        """What all ranks are going to write; None until each has said so."""
        if not self._all_in(_PLANNED):
            return None
        return sum(share.planned_bytes or 0 for share in self._shares.values())

    def turn(self, max_streams: int) -> int:
        """Ranks below this number may write: the first so many of those whose bytes are not durable."""
        writing = [rank for rank in range(self._num_ranks) if self._stage(rank) not in _DURABLE]
        return writing[max_streams - 1] + 1 if len(writing) > max_streams else self._num_ranks

    def have_applied(self, version: int) -> bool:
        """Whether the writers of all ranks follow this version of the rate, or a newer one, or write no more.

        A lowered rate may be confirmed to the coordinator only then.
        """
        return len(self._shares) == self._num_ranks and all(
            share.stage in _DURABLE or self._applied[rank] >= version for rank, share in self._shares.items()
        )

    def counters(self) -> FlowCounters:
        """The flow of the job: bytes add up; of the times the mean, in which a rank counts by the bytes it writes."""
        shares = self._shares.values()
        total = sum(share.planned_bytes or 0 for share in shares) or 1
        weighted = [((share.planned_bytes or 0) / total, share) for share in shares]
        return FlowCounters(
            done_bytes=sum(share.done_bytes for share in shares),
            throttled_s=sum(weight * share.throttled_s for weight, share in weighted),
            blocked_s=sum(weight * share.blocked_s for weight, share in weighted),
            busy_s=sum(weight * share.busy_s for weight, share in weighted),
        )

    def _opening(self) -> Event | None:
        first = self._shares.get(0)
        if first is None:
            return None
        for rank, share in sorted(self._shares.items()):
            if share.step != first.step:
                why = f"rank 0 holds step {first.step} and rank {rank} holds step {share.step}"
                return self._fails(rank, why)
        return Event(kind=EventKind.OPENED, number=self.number) if self._all_in(_PRESENT) else None

    def _all_in(self, stages: frozenset[Stage]) -> bool:
        return len(self._shares) == self._num_ranks and all(
            share.stage in stages for share in self._shares.values()
        )

    def _stage(self, rank: int) -> Stage:
        share = self._shares.get(rank)
        return Stage.NONE if share is None else share.stage

    def _fails(self, rank: int, why: str) -> Event:
        return Event(
            kind=EventKind.FAILED, number=self.number, rank=rank, detail=why, reason=FailReason.RANK_FAILED
        )
