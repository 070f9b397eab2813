"""What the engine asks of a store. One contract test suite holds for every store.

A store keeps, per pool, records and a little head (number, epoch, boot id, times), and a capped log of decisions. A
commit is all or nothing, and idempotent: the same batch sent twice lands once, because after a time-out nobody knows
whether the first one landed. Beside the pools it keeps who leads. A store decides nothing and never drops a record by
itself. Leading alone gives no right to write: the epoch of a commit does.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from rampmeter_coordinator.errors import Fenced, LostCommits
from rampmeter_coordinator.model.commands import Changes

LOG_ROWS = 10_000


class LogRow(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """One decision, enough to replay it: what came when, and every reply that it caused. Both are JSON."""

    now_s: float
    command: bytes
    replies: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far a pool has come. Later ones compare greater: a newer epoch goes on from what it found."""

    epoch: int
    number: int
    writer: str

    def behind(self, other: "Position") -> bool:
        """This one comes before `other`."""
        return (self.epoch, self.number) < (other.epoch, other.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What a store knows of a pool beside its records.

    number         of the newest commit; each commit is one more than the last
    epoch          grows with each start of a coordinator; a lower one is fenced
    writer         random per start: two that start in the same millisecond have the same epoch
    boot_id, now_s the machine and its clock at that commit: records carry times of this clock
    grace_s        grace that the writing coordinator's leases call for
    grace_until_s  end of a grace that was running, on the clock of boot_id; 0 = none
    """

    number: int
    epoch: int
    writer: str
    boot_id: str
    now_s: float
    grace_s: float
    grace_until_s: float

    @property
    def position(self) -> Position:
        """How far the pool has come."""
        return Position(epoch=self.epoch, number=self.number, writer=self.writer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One commit: the changes of some decisions, and the decisions.

    With an `opening` (how a ledger began, as JSON) a new segment of the log begins: the store keeps it, with a copy of
    meta and records as of this commit, until the next one.
    """

    pool: str
    head: Head
    changes: Changes
    log: tuple[LogRow, ...]
    opening: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The newest segment of a pool's log, all that a replay needs: how it began, and the decisions since.

    `num_missing` decisions between the beginning and the first of `rows` are no longer kept.
    """

    epoch: int
    opening: bytes
    meta: bytes
    records: Mapping[str, bytes]
    rows: tuple[LogRow, ...]
    num_missing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPool:
    """A pool as it was kept. `contiguous` is False where the store itself may have lost its newest commits.

    `overlap_s`: for so long from now on another server may go on to take commits that this one will never see.
    """

    head: Head
    records: Mapping[str, bytes]
    meta: bytes
    contiguous: bool
    overlap_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A process that would lead. `url`: where it answers; `now_s`: its clock, of boot `boot_id`, when it asked."""

    holder: str
    url: str
    boot_id: str
    now_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """Who leads, as it last asked. It leads for `ttl_s` from then on, on any clock; infinite where nobody else can."""

    leader: Candidate
    ttl_s: float


class Store(Protocol):
    """Where pools are kept. Every method may raise StoreUnavailable."""

    async def load(self, pool: str) -> StoredPool | None:
        """The pool as of its newest commit; None if nothing was ever kept."""
        ...

    async def commit(self, batch: Batch) -> None:
        """Keep the batch, or raise Fenced or LostCommits and keep nothing."""
        ...

    async def newest(self, pool: str) -> Position | None:
        """How far the pool has come, without its records."""
        ...

    async def segment(self, pool: str) -> Segment | None:
        """The newest segment of the pool's log; None if none ever began."""
        ...

    async def lead(self, candidate: Candidate, ttl_s: float) -> Lead:
        """Who leads: `candidate`, for `ttl_s` from now on, if it leads already or nobody does."""
        ...

    async def resign(self, holder: str) -> None:
        """Lead no more, if `holder` does."""
        ...

    async def close(self) -> None:
        """Let go of files and connections."""
        ...


def must_land(batch: Head, stored: Head | None, pool: str, *, claims: bool) -> bool:
    """Whether this commit has still to be written; False if it is there already. Raises Fenced or LostCommits.

    Only one that `claims` the pool, the first of its writer, goes on from what another has written: in a store that was
    emptied numbers and epochs may fit by chance.
    """
    if stored is None:
        if batch.number == 1:
            return True
        raise LostCommits(f"pool {pool}: the store is empty, but it had kept commit {batch.number - 1}")
    if stored.epoch > batch.epoch:
        raise Fenced(f"pool {pool}: epoch {stored.epoch} has taken over from {batch.epoch}")
    if (stored.epoch, stored.writer) == (batch.epoch, batch.writer) and stored.number == batch.number:
        return False
    if stored.number >= batch.number or (stored.epoch == batch.epoch and stored.writer != batch.writer):
        raise Fenced(f"pool {pool}: commit {stored.number} of another coordinator is there already")
    if stored.number < batch.number - 1:
        raise LostCommits(
            f"pool {pool}: the store is at commit {stored.number}, but it had kept {batch.number - 1}"
        )
    if stored.writer != batch.writer and not claims:
        raise Fenced(f"pool {pool}: commit {stored.number} is another coordinator's")
    return True


def pack_rows(rows: Iterable[LogRow]) -> bytes:
    """The decisions of one commit as a store keeps them."""
    return _PACK.encode(tuple(rows))


def unpack_rows(packed: bytes) -> list[LogRow]:
    """What `pack_rows` packed."""
    return _UNPACK.decode(packed)


def segment_of(
    *,
    epoch: int,
    opening: bytes,
    meta: bytes,
    records: Mapping[str, bytes],
    log: list[LogRow],
    num_since: int,
) -> Segment:
    """The segment that began `num_since` decisions ago, out of a log that may reach back further, or less far."""
    rows = tuple(log[-num_since:]) if num_since else ()
    return Segment(
        epoch=epoch,
        opening=opening,
        meta=meta,
        records=records,
        rows=rows,
        num_missing=num_since - len(rows),
    )


_PACK = msgspec.msgpack.Encoder()
_UNPACK = msgspec.msgpack.Decoder(list[LogRow])
