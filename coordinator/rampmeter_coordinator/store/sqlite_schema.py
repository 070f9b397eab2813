"""The tables of the embedded store, and how files of earlier releases become files of this one. Forward only.

commits  a row per commit; the newest one of a pool is its head. `records`: those that changed, {key: value or nil};
         the newest row with a key counts. `rows`: its decisions, if any; `num_rows` counts all that were ever logged
starts   how the newest segment of the log began, with a copy of the records in `start_records`; it is as long as the
         newest `log_rows` decisions, also where the rows of some more are still there
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path

import msgspec

from rampmeter.core.errors import ConfigError
from rampmeter_coordinator.store.protocol import LOG_ROWS, LogRow, pack_rows

SCHEMA = 3
CHUNK = 500
"""Records in one row where many are written at once."""

_HEADS_1 = """
CREATE TABLE heads (
    pool TEXT PRIMARY KEY, number INTEGER NOT NULL, epoch INTEGER NOT NULL, writer TEXT NOT NULL,
    boot_id TEXT NOT NULL, now_s REAL NOT NULL, grace_s REAL NOT NULL, grace_until_s REAL NOT NULL, meta BLOB NOT NULL
) WITHOUT ROWID
"""
_RECORDS_1 = """
CREATE TABLE records (
    pool TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (pool, key)
) WITHOUT ROWID
"""
_LOG_1 = """
CREATE TABLE log (
    pool TEXT NOT NULL, row INTEGER NOT NULL, now_s REAL NOT NULL, command BLOB NOT NULL, replies BLOB NOT NULL,
    PRIMARY KEY (pool, row)
) WITHOUT ROWID
"""
_TABLES_2 = (
    "ALTER TABLE heads ADD COLUMN num_rows INTEGER NOT NULL DEFAULT 0",
    "CREATE TABLE versions (id INTEGER PRIMARY KEY, pool TEXT NOT NULL, records BLOB NOT NULL)",
    "CREATE TABLE log (id INTEGER PRIMARY KEY, pool TEXT NOT NULL, last_row INTEGER NOT NULL, rows BLOB NOT NULL)",
    "CREATE INDEX log_rows ON log (pool, last_row)",
    """CREATE TABLE starts (
        pool TEXT PRIMARY KEY, epoch INTEGER NOT NULL, num_rows INTEGER NOT NULL, opening BLOB NOT NULL,
        meta BLOB NOT NULL
    ) WITHOUT ROWID""",
    "CREATE TABLE start_records (id INTEGER PRIMARY KEY, pool TEXT NOT NULL, records BLOB NOT NULL)",
)

_COMMITS_3 = """
CREATE TABLE commits (
    id INTEGER PRIMARY KEY, pool TEXT NOT NULL, number INTEGER NOT NULL, epoch INTEGER NOT NULL, writer TEXT NOT NULL,
    boot_id TEXT NOT NULL, now_s REAL NOT NULL, grace_s REAL NOT NULL, grace_until_s REAL NOT NULL,
    num_rows INTEGER NOT NULL, meta BLOB NOT NULL, records BLOB NOT NULL, rows BLOB
)
"""
_MOVE_3 = """
INSERT INTO commits
    (pool, number, epoch, writer, boot_id, now_s, grace_s, grace_until_s, num_rows, meta, records, rows)
SELECT pool, number, epoch, writer, boot_id, now_s, grace_s, grace_until_s, {num_rows}, meta, {records}, {rows}
FROM heads {what}
"""

Records = dict[str, bytes | None]

_PACK = msgspec.msgpack.Encoder()
_UNPACK = msgspec.msgpack.Decoder(Records)


def pack_records(records: Mapping[str, bytes | None]) -> bytes:
    """Some records as one value."""
    return _PACK.encode(records)


def unpack_records(packed: bytes) -> Records:
    """What `pack_records` packed."""
    return _UNPACK.decode(packed)


def chunks(records: Mapping[str, bytes]) -> Iterator[dict[str, bytes]]:
    """All of them, some at a time."""
    items = iter(records.items())
    while chunk := dict(islice(items, CHUNK)):
        yield chunk


def migrate(db: sqlite3.Connection, path: Path) -> None:
    """Bring the file up to date, whole or not at all. Raises ConfigError for a file of a newer release."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA:
        db.close()
        raise ConfigError(
            f"{path} was written by a newer coordinator (schema {version}, this one knows {SCHEMA}): "
            "use that version, or another data directory"
        )
    if version == SCHEMA:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        for step in _STEPS[version:]:
            step(db)
        db.execute(f"PRAGMA user_version = {SCHEMA}")
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def _first_tables(db: sqlite3.Connection) -> None:
    for table in (_HEADS_1, _RECORDS_1, _LOG_1):
        db.execute(table)


def _rows_per_commit(db: sqlite3.Connection) -> None:
    """Records in place and a row per decision become rows per commit: see `sqlite_file`."""
    db.execute("ALTER TABLE log RENAME TO old_log")
    for statement in _TABLES_2:
        db.execute(statement)
    for (pool,) in db.execute("SELECT pool FROM heads").fetchall():
        for chunk in chunks(dict(db.execute("SELECT key, value FROM records WHERE pool = ?", (pool,)))):
            db.execute("INSERT INTO versions (pool, records) VALUES (?, ?)", (pool, pack_records(chunk)))
        found = db.execute(
            "SELECT row, now_s, command, replies FROM old_log WHERE pool = ? ORDER BY row", (pool,)
        ).fetchall()
        if found:
            rows = [
                LogRow(now_s=now_s, command=command, replies=replies) for _, now_s, command, replies in found
            ]
            last_row = found[-1][0]
            db.execute(
                "INSERT INTO log (pool, last_row, rows) VALUES (?, ?, ?)", (pool, last_row, pack_rows(rows))
            )
            db.execute("UPDATE heads SET num_rows = ? WHERE pool = ?", (last_row, pool))
    db.execute("DROP TABLE records")
    db.execute("DROP TABLE old_log")


def _one_row_per_commit(db: sqlite3.Connection) -> None:
    """A head in place, a row of records and a row of decisions per commit become one row per commit."""
    db.execute(_COMMITS_3)
    db.execute(f"ALTER TABLE starts ADD COLUMN log_rows INTEGER NOT NULL DEFAULT {LOG_ROWS}")
    nothing = f"X'{pack_records({}).hex()}'"
    old_records = "JOIN (SELECT id, pool, records FROM versions) USING (pool) ORDER BY id"
    db.execute(_MOVE_3.format(num_rows="num_rows", records="records", rows="NULL", what=old_records))
    old_log = "JOIN (SELECT id, pool, last_row, rows FROM log) USING (pool) ORDER BY id"
    db.execute(_MOVE_3.format(num_rows="last_row", records=nothing, rows="rows", what=old_log))
    db.execute(_MOVE_3.format(num_rows="num_rows", records=nothing, rows="NULL", what=""))
    for table in ("heads", "versions", "log"):
        db.execute(f"DROP TABLE {table}")


_STEPS: tuple[Callable[[sqlite3.Connection], None], ...] = (
    _first_tables,
    _rows_per_commit,
    _one_row_per_commit,
)
