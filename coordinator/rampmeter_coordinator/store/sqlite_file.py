"""Reads and writes the file of the embedded store: what a commit appends, and how the file stays small.

A commit is one row at the end of one table: its head, the records that changed and the decisions. Nothing is changed
in place, so that it costs the same for 100 jobs and 100,000. When the file holds twice as many versions as there are
records, or twice as many decisions as both need, each commit drops the oldest rows that the log needs no more, and
appends what was still current in them. Whatever is said to the coordinator, the file does not grow without bound.
"""

import sqlite3
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from rampmeter_coordinator.store.protocol import (
    Batch,
    Head,
    LogRow,
    Segment,
    StoredPool,
    must_land,
    pack_rows,
    segment_of,
    unpack_rows,
)
from rampmeter_coordinator.store.sqlite_schema import Records, chunks, pack_records, unpack_records

SPARE_VERSIONS = 1000
_MAX_DROPPED = 8
"""Old rows that one commit looks through at most: no commit takes long."""

_SELECT_NEWEST = """
SELECT number, epoch, writer, boot_id, now_s, grace_s, grace_until_s, meta, num_rows FROM commits
WHERE pool = ? ORDER BY id DESC LIMIT 1
"""
_INSERT = """
INSERT INTO commits (number, epoch, writer, boot_id, now_s, grace_s, grace_until_s, meta, num_rows, pool, records, rows)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


class PoolFile:
    """All pools of one connection; lives in the store's thread.

    Nobody else writes the file, for its directory is locked: what it holds is looked up once and then remembered.
    """

    def __init__(self, db: sqlite3.Connection, *, log_rows: int) -> None:
        self._db = db
        self._log_rows = log_rows
        self._indexes: dict[str, _Index] = {}

    def load(self, pool: str) -> StoredPool | None:
        newest = self._newest(pool)
        if newest is None:
            return None
        head, meta, _ = newest
        return StoredPool(head=head, records=self._records(pool), meta=meta, contiguous=True)

    def head(self, pool: str) -> Head | None:
        newest = self._newest(pool)
        return newest[0] if newest else None

    def commit(self, batch: Batch) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            index = self._index(batch.pool)
            if must_land(batch.head, index.head, batch.pool, claims=batch.opening is not None):
                self._write(batch, index)
            self._db.execute("COMMIT")
        except BaseException:
            self._indexes.pop(batch.pool, None)  # it may be ahead of the file now
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def log(self, pool: str) -> list[LogRow]:
        return read_log(self._db, pool)[-self._log_rows :]

    def segment(self, pool: str) -> Segment | None:
        return read_segment(self._db, pool)

    # -- writing -----------------------------------------------------------------------------------------------

    def _write(self, batch: Batch, index: "_Index") -> None:
        pool, head, rows = batch.pool, batch.head, batch.log
        records = batch.changes.records
        self._drop_hollow(index)
        carried = self._drop_old(index)
        if carried:
            records = {**carried, **records}
        num_rows = index.num_rows + len(rows)
        cursor = self._db.execute(
            _INSERT,
            (
                head.number,
                head.epoch,
                head.writer,
                head.boot_id,
                head.now_s,
                head.grace_s,
                head.grace_until_s,
                batch.changes.meta,
                num_rows,
                pool,
                pack_records(records),
                pack_rows(rows[-self._log_rows :]) if rows else None,
            ),
        )
        assert cursor.lastrowid is not None
        index.append(cursor.lastrowid, records, num_rows, has_log=bool(rows))
        index.head = head
        if batch.opening is not None:
            self._begin_segment(batch, batch.opening, num_rows)

    def _drop_hollow(self, index: "_Index") -> None:
        """Drop the newest row if it was a head and nothing else, as when somebody asks whether we are ready."""
        row = index.drop_hollow()
        if row is not None:
            self._db.execute("DELETE FROM commits WHERE id = ?", (row,))

    def _drop_old(self, index: "_Index") -> Records:
        """Drop the oldest rows if there are too many; gives what is still current in them."""
        carried: Records = {}
        for _ in range(_MAX_DROPPED):
            if not index.may_drop_oldest(self._log_rows):
                break
            row, current = index.drop_oldest()
            if current:
                (packed,) = self._db.execute("SELECT records FROM commits WHERE id = ?", (row,)).fetchone()
                records = unpack_records(packed)
                carried |= {key: records[key] for key in index.carry(current, records)}
            self._db.execute("DELETE FROM commits WHERE id = ?", (row,))
        return carried

    def _begin_segment(self, batch: Batch, opening: bytes, num_rows: int) -> None:
        pool = batch.pool
        self._db.execute("DELETE FROM start_records WHERE pool = ?", (pool,))
        self._db.execute(
            "INSERT OR REPLACE INTO starts (pool, epoch, num_rows, log_rows, opening, meta) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (pool, batch.head.epoch, num_rows, self._log_rows, opening, batch.changes.meta),
        )
        for chunk in chunks(self._records(pool)):
            self._db.execute(
                "INSERT INTO start_records (pool, records) VALUES (?, ?)", (pool, pack_records(chunk))
            )

    # -- reading -----------------------------------------------------------------------------------------------

    def _newest(self, pool: str) -> tuple[Head, bytes, int] | None:
        """Head, meta and number of decisions as of the newest commit."""
        found = self._db.execute(_SELECT_NEWEST, (pool,)).fetchone()
        if found is None:
            return None
        number, epoch, writer, boot_id, now_s, grace_s, grace_until_s, meta, num_rows = found
        head = Head(
            number=number,
            epoch=epoch,
            writer=writer,
            boot_id=boot_id,
            now_s=now_s,
            grace_s=grace_s,
            grace_until_s=grace_until_s,
        )
        return head, meta, num_rows

    def _records(self, pool: str) -> dict[str, bytes]:
        newest: Records = {}
        for (packed,) in self._db.execute("SELECT records FROM commits WHERE pool = ? ORDER BY id", (pool,)):
            newest |= unpack_records(packed)
        return {key: value for key, value in newest.items() if value is not None}

    def _index(self, pool: str) -> "_Index":
        index = self._indexes.get(pool)
        if index is None:
            index = self._indexes[pool] = self._read_index(pool)
        return index

    def _read_index(self, pool: str) -> "_Index":
        index = _Index()
        newest = self._newest(pool)
        if newest is not None:
            index.head = newest[0]
        for row, packed, num_rows, has_log in self._db.execute(
            "SELECT id, records, num_rows, rows IS NOT NULL FROM commits WHERE pool = ? ORDER BY id", (pool,)
        ):
            index.append(row, unpack_records(packed), num_rows, has_log=bool(has_log))
        return index


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One commit: keys of its records, and of its decisions the number of the last one, None without any."""

    id: int
    keys: tuple[str, ...]
    last_row: int | None
    num_decisions: int


class _Index:
    """What the file holds of a pool: the head of its newest commit, and where the newest version of each record stands,
    of deleted ones too as long as older versions do.
    """

    def __init__(self) -> None:
        self.head: Head | None = None
        self.num_rows = 0
        """Of all decisions that were ever logged."""
        self._rows: deque[_Row] = deque()
        """From the oldest on."""
        self._newest: dict[str, int] = {}
        self._num_versions = self._num_decisions = 0
        """In all rows."""

    def append(self, row: int, records: Mapping[str, bytes | None], num_rows: int, *, has_log: bool) -> None:
        """A row with these records, after which `num_rows` decisions had been logged, its own among them if any."""
        # The oldest row of a file counts those that were dropped before it, too: it goes the sooner.
        num_decisions = max(0, num_rows - self.num_rows) if has_log else 0
        self._rows.append(
            _Row(
                id=row,
                keys=tuple(records),
                last_row=num_rows if has_log else None,
                num_decisions=num_decisions,
            )
        )
        self.num_rows = num_rows
        self._num_versions += len(records)
        self._num_decisions += num_decisions
        self._newest.update(dict.fromkeys(records, row))

    def drop_hollow(self) -> int | None:
        """Forget the newest row if it has neither records nor decisions; gives its id."""
        if not self._rows or self._rows[-1].keys or self._rows[-1].last_row is not None:
            return None
        return self._rows.pop().id

    def may_drop_oldest(self, log_rows: int) -> bool:
        """The log of `log_rows` decisions needs the oldest row no more, and there are too many versions or decisions.

        Twice as many as are needed: so each decision pays for carrying one record on at most.
        """
        if not self._rows:
            return False
        last_row = self._rows[0].last_row
        if last_row is not None and last_row > self.num_rows - log_rows:
            return False
        num_records = len(self._newest)
        too_many_versions = self._num_versions > 2 * num_records + SPARE_VERSIONS
        return too_many_versions or self._num_decisions > 2 * (num_records + log_rows)

    def drop_oldest(self) -> tuple[int, list[str]]:
        """Forget the oldest row; gives its id, and the keys of what is current in it."""
        row = self._rows.popleft()
        self._num_versions -= len(row.keys)
        self._num_decisions -= row.num_decisions
        return row.id, [key for key in row.keys if self._newest[key] == row.id]

    def carry(self, keys: list[str], records: Records) -> list[str]:
        """Those keys whose records live on; deleted ones are forgotten: nothing older is left that they would hide."""
        for key in keys:
            if records[key] is None:
                del self._newest[key]
        return [key for key in keys if records[key] is not None]


def read_log(db: sqlite3.Connection, pool: str) -> list[LogRow]:
    """The newest decisions, oldest first."""
    found = db.execute("SELECT rows FROM commits WHERE pool = ? AND rows IS NOT NULL ORDER BY id", (pool,))
    return [row for (packed,) in found for row in unpack_rows(packed)]


def read_segment(db: sqlite3.Connection, pool: str) -> Segment | None:
    """The newest segment of the log, all of it as of one moment, whoever writes meanwhile."""
    db.execute("BEGIN")
    try:
        start = db.execute(
            "SELECT epoch, opening, meta, num_rows, log_rows FROM starts WHERE pool = ?", (pool,)
        ).fetchone()
        if start is None:
            return None
        epoch, opening, meta, num_before, log_rows = start
        *_, num_rows = db.execute(_SELECT_NEWEST, (pool,)).fetchone()
        records: dict[str, bytes] = {}
        for (packed,) in db.execute("SELECT records FROM start_records WHERE pool = ? ORDER BY id", (pool,)):
            records |= {key: value for key, value in unpack_records(packed).items() if value is not None}
        return segment_of(
            epoch=epoch,
            opening=opening,
            meta=meta,
            records=records,
            log=read_log(db, pool)[-log_rows:],
            num_since=num_rows - num_before,
        )
    finally:
        db.execute("ROLLBACK")
