"""A store in a dictionary: tests, the simulator, and a coordinator whose operator accepts grace after each restart."""

import math
from collections import deque
from dataclasses import dataclass

from rampmeter_coordinator.store.protocol import (
    LOG_ROWS,
    Batch,
    Candidate,
    Head,
    Lead,
    LogRow,
    Position,
    Segment,
    StoredPool,
    must_land,
    segment_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """How a segment began; `num_rows` decisions had been logged before."""

    epoch: int
    opening: bytes
    meta: bytes
    records: dict[str, bytes]
    num_rows: int


class _Pool:
    def __init__(self, log_rows: int) -> None:
        self.head: Head | None = None
        self.records: dict[str, bytes] = {}
        self.meta = b""
        self.log: deque[LogRow] = deque(maxlen=log_rows)
        self.num_rows = 0
        self.start: _Start | None = None


class MemoryStore:
    """Keeps everything until the process ends."""

    def __init__(self, *, log_rows: int = LOG_ROWS) -> None:
        self._log_rows = log_rows
        self._pools: dict[str, _Pool] = {}

    async def load(self, pool: str) -> StoredPool | None:
        kept = self._pools.get(pool)
        if kept is None or kept.head is None:
            return None
        return StoredPool(head=kept.head, records=dict(kept.records), meta=kept.meta, contiguous=True)

    async def commit(self, batch: Batch) -> None:
        kept = self._pools.setdefault(batch.pool, _Pool(self._log_rows))
        if not must_land(batch.head, kept.head, batch.pool, claims=batch.opening is not None):
            return
        for key, value in batch.changes.records.items():
            if value is None:
                kept.records.pop(key, None)
            else:
                kept.records[key] = value
        kept.head, kept.meta = batch.head, batch.changes.meta
        kept.log.extend(batch.log)
        kept.num_rows += len(batch.log)
        if batch.opening is not None:
            kept.start = _Start(
                epoch=batch.head.epoch,
                opening=batch.opening,
                meta=kept.meta,
                records=dict(kept.records),
                num_rows=kept.num_rows,
            )

    async def newest(self, pool: str) -> Position | None:
        kept = self._pools.get(pool)
        return kept.head.position if kept and kept.head else None

    async def segment(self, pool: str) -> Segment | None:
        kept = self._pools.get(pool)
        if kept is None or kept.start is None:
            return None
        start = kept.start
        return segment_of(
            epoch=start.epoch,
            opening=start.opening,
            meta=start.meta,
            records=start.records,
            log=list(kept.log),
            num_since=kept.num_rows - start.num_rows,
        )

    async def lead(self, candidate: Candidate, ttl_s: float) -> Lead:  # noqa: ARG002  # who opened it leads, for ever
        return Lead(leader=candidate, ttl_s=math.inf)

    async def resign(self, holder: str) -> None:  # noqa: ARG002
        return

    async def close(self) -> None:
        return

    def log(self, pool: str) -> list[LogRow]:
        """The newest decisions, oldest first."""
        return list(self._pools[pool].log) if pool in self._pools else []
