"""The embedded store: one SQLite file in a data directory that belongs to one coordinator at a time.

One connection in one thread, so that a commit never blocks the event loop. WAL with synchronous NORMAL loses nothing
when the process dies; after a power cut the newest commits may be gone, which the boot id shows, and grace covers.
A data directory that cannot be used is a ConfigError at start; an error later is StoreUnavailable.
"""

import asyncio
import fcntl
import math
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from rampmeter.core.errors import ConfigError
from rampmeter_coordinator.errors import StoreUnavailable
from rampmeter_coordinator.store.protocol import (
    LOG_ROWS,
    Batch,
    Candidate,
    Head,
    Lead,
    LogRow,
    Position,
    StoredPool,
    must_land,
)

SCHEMA = 1
_FILE = "rampmeter.sqlite3"
_LOCK = "lock"

_CREATE = """
CREATE TABLE heads (
    pool TEXT PRIMARY KEY, number INTEGER NOT NULL, epoch INTEGER NOT NULL, writer TEXT NOT NULL,
    boot_id TEXT NOT NULL, now_s REAL NOT NULL, grace_s REAL NOT NULL, grace_until_s REAL NOT NULL, meta BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE records (
    pool TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (pool, key)
) WITHOUT ROWID;
CREATE TABLE log (
    pool TEXT NOT NULL, row INTEGER NOT NULL, now_s REAL NOT NULL, command BLOB NOT NULL, replies BLOB NOT NULL,
    PRIMARY KEY (pool, row)
) WITHOUT ROWID;
"""
_SELECT_HEAD = (
    "SELECT number, epoch, writer, boot_id, now_s, grace_s, grace_until_s FROM heads WHERE pool = ?"
)
_PUT_HEAD = "INSERT OR REPLACE INTO heads VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"

T = TypeVar("T")


class SqliteStore:
    """Use `open`: it takes the lock and brings the file up to date."""

    def __init__(self, executor: ThreadPoolExecutor, kept: "_File") -> None:
        self._executor = executor
        self._file = kept

    @classmethod
    async def open(
        cls, data_dir: Path, *, synchronous: str = "normal", log_rows: int = LOG_ROWS
    ) -> "SqliteStore":
        """Open or create the store in `data_dir`. Raises ConfigError naming the directory."""
        executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rampmeter-store")
        try:
            kept = await asyncio.get_running_loop().run_in_executor(
                executor, lambda: _File(data_dir, synchronous=synchronous, log_rows=log_rows)
            )
        except BaseException:
            executor.shutdown(wait=False)
            raise
        return cls(executor, kept)

    async def load(self, pool: str) -> StoredPool | None:
        return await self._run(lambda: self._file.load(pool))

    async def commit(self, batch: Batch) -> None:
        await self._run(lambda: self._file.commit(batch))

    async def log(self, pool: str) -> list[LogRow]:
        """The newest decisions, oldest first."""
        return await self._run(lambda: self._file.log(pool))

    async def newest(self, pool: str) -> Position | None:
        return await self._run(lambda: self._file.newest(pool))

    async def lead(self, candidate: Candidate, ttl_s: float) -> Lead:  # noqa: ARG002  # the lock on the directory says so
        return Lead(leader=candidate, ttl_s=math.inf)

    async def resign(self, holder: str) -> None:  # noqa: ARG002
        return

    async def close(self) -> None:
        await self._run(self._file.close)
        self._executor.shutdown()

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self._file.path}: {error}") from error


class _File:
    """The connection and its lock; lives in the store's thread."""

    def __init__(self, data_dir: Path, *, synchronous: str, log_rows: int) -> None:
        self.path = data_dir / _FILE
        self._log_rows = log_rows
        self._lock = _take_directory(data_dir)
        try:
            self._db = _connect(self.path, synchronous)
        except BaseException:
            os.close(self._lock)
            raise

    def load(self, pool: str) -> StoredPool | None:
        head = self._head(pool)
        if head is None:
            return None
        (meta,) = self._db.execute("SELECT meta FROM heads WHERE pool = ?", (pool,)).fetchone()
        records = dict(self._db.execute("SELECT key, value FROM records WHERE pool = ?", (pool,)))
        return StoredPool(head=head, records=records, meta=meta, contiguous=True)

    def commit(self, batch: Batch) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            if must_land(batch.head, self._head(batch.pool), batch.pool):
                self._write(batch)
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def log(self, pool: str) -> list[LogRow]:
        rows = self._db.execute(
            "SELECT now_s, command, replies FROM log WHERE pool = ? ORDER BY row", (pool,)
        )
        return [LogRow(now_s=now_s, command=command, replies=replies) for now_s, command, replies in rows]

    def newest(self, pool: str) -> Position | None:
        head = self._head(pool)
        return head.position if head else None

    def close(self) -> None:
        self._db.close()
        os.close(self._lock)

    def _head(self, pool: str) -> Head | None:
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

    def _write(self, batch: Batch) -> None:
        pool, head, records = batch.pool, batch.head, batch.changes.records
        self._db.executemany(
            "INSERT OR REPLACE INTO records VALUES (?, ?, ?)",
            [(pool, key, value) for key, value in records.items() if value is not None],
        )
        self._db.executemany(
            "DELETE FROM records WHERE pool = ? AND key = ?",
            [(pool, key) for key, value in records.items() if value is None],
        )
        self._db.execute(
            _PUT_HEAD,
            (
                pool,
                head.number,
                head.epoch,
                head.writer,
                head.boot_id,
                head.now_s,
                head.grace_s,
                head.grace_until_s,
                batch.changes.meta,
            ),
        )
        if batch.log:
            self._append(pool, batch.log)

    def _append(self, pool: str, log: tuple[LogRow, ...]) -> None:
        (last,) = self._db.execute("SELECT max(row) FROM log WHERE pool = ?", (pool,)).fetchone()
        first = (last or 0) + 1
        self._db.executemany(
            "INSERT INTO log VALUES (?, ?, ?, ?, ?)",
            [(pool, number, row.now_s, row.command, row.replies) for number, row in enumerate(log, first)],
        )
        self._db.execute(
            "DELETE FROM log WHERE pool = ? AND row <= ?", (pool, first + len(log) - 1 - self._log_rows)
        )


def _take_directory(data_dir: Path) -> int:
    """Create `data_dir` if need be and lock it; the kernel lets go of the lock however the process ends."""
    try:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o750)
        lock = os.open(data_dir / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    except OSError as error:
        raise ConfigError(f"data directory {data_dir} cannot be used: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.truncate(lock, 0)
        os.write(lock, f"{os.getpid()}\n".encode())
    except BlockingIOError:
        holder = os.read(lock, 32).decode(errors="replace").strip()
        os.close(lock)
        raise ConfigError(
            f"data directory {data_dir} belongs to a running coordinator (process {holder}): "
            "stop that one or choose another directory"
        ) from None
    except OSError as error:
        os.close(lock)
        raise ConfigError(f"data directory {data_dir} cannot be used: {error.strerror}") from error
    return lock


def _connect(path: Path, synchronous: str) -> sqlite3.Connection:
    try:
        db = sqlite3.connect(path, isolation_level=None, cached_statements=64)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {synchronous}")
        _migrate(db, path)
    except sqlite3.Error as error:
        raise ConfigError(f"{path} cannot be used: {error}") from error
    return db


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA:
        db.close()
        raise ConfigError(
            f"{path} was written by a newer coordinator (schema {version}, this one knows {SCHEMA}): "
            "use that version, or another data directory"
        )
    if version < SCHEMA:
        db.executescript(f"BEGIN; {_CREATE} PRAGMA user_version = {SCHEMA}; COMMIT;")
