"""Reads and writes the file of the embedded store: what a commit appends, and how the file stays small.

Records are appended, never changed in place: a commit of 32 records is one row at the end instead of 32 pages all over
the file, and costs the same for 100 jobs and 100,000. When the file holds twice as many versions as there are records,
each commit drops the oldest rows and appends what was still current in them.
"""

import sqlite3
from collections import deque
from collections.abc import Mapping

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

_SELECT_HEAD = (
    "SELECT number, epoch, writer, boot_id, now_s, grace_s, grace_until_s FROM heads WHERE pool = ?"
)
_PUT_HEAD = """
INSERT INTO heads (number, epoch, writer, boot_id, now_s, grace_s, grace_until_s, meta, num_rows, pool)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (pool) DO UPDATE SET
number = excluded.number, epoch = excluded.epoch, writer = excluded.writer, boot_id = excluded.boot_id,
now_s = excluded.now_s, grace_s = excluded.grace_s, grace_until_s = excluded.grace_until_s, meta = excluded.meta,
num_rows = heads.num_rows + excluded.num_rows
"""


class PoolFile:
    """All pools of one connection; lives in the store's thread."""

    def __init__(self, db: sqlite3.Connection, *, log_rows: int) -> None:
        self._db = db
        self._log_rows = log_rows
        self._indexes: dict[str, _Index] = {}

    def load(self, pool: str) -> StoredPool | None:
        head = self.head(pool)
        if head is None:
            return None
        (meta,) = self._db.execute("SELECT meta FROM heads WHERE pool = ?", (pool,)).fetchone()
        return StoredPool(head=head, records=self._records(pool), meta=meta, contiguous=True)

    def head(self, pool: str) -> Head | None:
        row = self._db.execute(_SELECT_HEAD, (pool,)).fetchone()
        if row is None:
            return None
        number, epoch, writer, boot_id, now_s, grace_s, grace_until_s = row
        return Head(
            number=number,
            epoch=epoch,
            writer=writer,
            boot_id=boot_id,
            now_s=now_s,
            grace_s=grace_s,
            grace_until_s=grace_until_s,
        )

    def commit(self, batch: Batch) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            if must_land(batch.head, self.head(batch.pool), batch.pool):
                self._write(batch)
            self._db.execute("COMMIT")
        except BaseException:
            self._indexes.pop(batch.pool, None)  # it may be ahead of the file now
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def log(self, pool: str) -> list[LogRow]:
        return read_log(self._db, pool)

    def segment(self, pool: str) -> Segment | None:
        return read_segment(self._db, pool)

    # -- writing -----------------------------------------------------------------------------------------------

    def _write(self, batch: Batch) -> None:
        pool, head, rows = batch.pool, batch.head, batch.log
        if batch.changes.records:
            self._append_records(pool, batch.changes.records)
        self._db.execute(
            _PUT_HEAD,
            (
                head.number,
                head.epoch,
                head.writer,
                head.boot_id,
                head.now_s,
                head.grace_s,
                head.grace_until_s,
                batch.changes.meta,
                len(rows),
                pool,
            ),
        )
        if rows:
            self._append_rows(pool, rows)
        if batch.opening is not None:
            self._begin_segment(batch, batch.opening)

    def _append_records(self, pool: str, records: Mapping[str, bytes | None]) -> None:
        index = self._indexes.get(pool)
        if index is None:
            index = self._indexes[pool] = self._read_index(pool)
        carried = self._drop_old(index)
        if carried:
            records = {**carried, **records}
        cursor = self._db.execute(
            "INSERT INTO versions (pool, records) VALUES (?, ?)", (pool, pack_records(records))
        )
        assert cursor.lastrowid is not None
        index.append(cursor.lastrowid, records)

    def _drop_old(self, index: "_Index") -> Records:
        """Drop the oldest rows if there are too many versions; gives what is still current in them."""
        carried: Records = {}
        for _ in range(_MAX_DROPPED):
            if not index.too_many():
                break
            row = index.rows[0][0]
            (packed,) = self._db.execute("SELECT records FROM versions WHERE id = ?", (row,)).fetchone()
            carried |= index.drop_oldest(unpack_records(packed))
            self._db.execute("DELETE FROM versions WHERE id = ?", (row,))
        return carried

    def _append_rows(self, pool: str, rows: tuple[LogRow, ...]) -> None:
        (last_row,) = self._db.execute("SELECT num_rows FROM heads WHERE pool = ?", (pool,)).fetchone()
        self._db.execute(
            "INSERT INTO log (pool, last_row, rows) VALUES (?, ?, ?)",
            (pool, last_row, pack_rows(rows[-self._log_rows :])),
        )
        self._db.execute(
            "DELETE FROM log WHERE pool = ? AND last_row <= ?", (pool, last_row - self._log_rows)
        )

    def _begin_segment(self, batch: Batch, opening: bytes) -> None:
        pool = batch.pool
        self._db.execute("DELETE FROM start_records WHERE pool = ?", (pool,))
        self._db.execute(
            "INSERT OR REPLACE INTO starts (pool, epoch, num_rows, opening, meta) "
            "SELECT pool, epoch, num_rows, ?, meta FROM heads WHERE pool = ?",
            (opening, pool),
        )
        for chunk in chunks(self._records(pool)):
            self._db.execute(
                "INSERT INTO start_records (pool, records) VALUES (?, ?)", (pool, pack_records(chunk))
            )

    # -- reading -----------------------------------------------------------------------------------------------

    def _records(self, pool: str) -> dict[str, bytes]:
        newest: Records = {}
        for (packed,) in self._db.execute("SELECT records FROM versions WHERE pool = ? ORDER BY id", (pool,)):
            newest |= unpack_records(packed)
        return {key: value for key, value in newest.items() if value is not None}

    def _read_index(self, pool: str) -> "_Index":
        index = _Index()
        for row, packed in self._db.execute(
            "SELECT id, records FROM versions WHERE pool = ? ORDER BY id", (pool,)
        ):
            index.append(row, unpack_records(packed))
        return index


class _Index:
    """Where the newest version of each record of a pool stands, deleted ones too as long as older versions do."""

    def __init__(self) -> None:
        self.rows: deque[tuple[int, int]] = deque()
        """Rows from the oldest on, with the number of versions in each."""
        self._newest: dict[str, int] = {}
        self._num_versions = 0

    def append(self, row: int, records: Mapping[str, bytes | None]) -> None:
        self.rows.append((row, len(records)))
        self._num_versions += len(records)
        self._newest.update(dict.fromkeys(records, row))

    def too_many(self) -> bool:
        return self._num_versions > 2 * len(self._newest) + SPARE_VERSIONS

    def drop_oldest(self, records: Records) -> Records:
        """Forget the oldest row, which holds `records`; gives those that are current."""
        row, count = self.rows.popleft()
        self._num_versions -= count
        current = {key: value for key, value in records.items() if self._newest.get(key) == row}
        for key, value in current.items():
            if value is None:  # nothing older is left that it would hide
                del self._newest[key]
        return {key: value for key, value in current.items() if value is not None}


def read_log(db: sqlite3.Connection, pool: str) -> list[LogRow]:
    """The newest decisions, oldest first."""
    found = db.execute("SELECT rows FROM log WHERE pool = ? ORDER BY id", (pool,))
    return [row for (packed,) in found for row in unpack_rows(packed)]


def read_segment(db: sqlite3.Connection, pool: str) -> Segment | None:
    """The newest segment of the log, all of it as of one moment, whoever writes meanwhile."""
    db.execute("BEGIN")
    try:
        start = db.execute(
            "SELECT starts.epoch, opening, starts.meta, heads.num_rows - starts.num_rows FROM starts "
            "JOIN heads USING (pool) WHERE pool = ?",
            (pool,),
        ).fetchone()
        if start is None:
            return None
        epoch, opening, meta, num_since = start
        records: dict[str, bytes] = {}
        for (packed,) in db.execute("SELECT records FROM start_records WHERE pool = ? ORDER BY id", (pool,)):
            records |= {key: value for key, value in unpack_records(packed).items() if value is not None}
        return segment_of(
            epoch=epoch,
            opening=opening,
            meta=meta,
            records=records,
            log=read_log(db, pool),
            num_since=num_since,
        )
    finally:
        db.execute("ROLLBACK")
