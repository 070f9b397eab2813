"""The embedded store: one SQLite file in a data directory that belongs to one coordinator at a time.

One connection in one thread, so that a commit never blocks the event loop. WAL with synchronous NORMAL loses nothing
when the process dies; after a power cut the newest commits may be gone, which the boot id shows, and grace covers.
A data directory that cannot be used is a ConfigError at start; an error later is StoreUnavailable.
"""

import contextlib
import fcntl
import math
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rampmeter.core.errors import ConfigError
from rampmeter_coordinator.errors import StoreUnavailable
from rampmeter_coordinator.store.protocol import (
    LOG_ROWS,
    Batch,
    Candidate,
    Lead,
    LogRow,
    Position,
    Segment,
    StoredPool,
)
from rampmeter_coordinator.store.sqlite_file import PoolFile, read_segment
from rampmeter_coordinator.store.sqlite_schema import SCHEMA, migrate
from rampmeter_coordinator.store.worker import Worker

_CHECKPOINT_PAGES = 4000
"""Of the write-ahead log, 16 MB: pages that are used again and again are copied into the file a quarter as often."""

_FILE = "rampmeter.sqlite3"
_LOCK = "lock"

T = TypeVar("T")


class SqliteStore:
    """Use `open`: it takes the lock and brings the file up to date."""

    def __init__(self, worker: Worker, kept: "_File") -> None:
        self._worker = worker
        self._file = kept

    @classmethod
    async def open(
        cls, data_dir: Path, *, synchronous: str = "normal", log_rows: int = LOG_ROWS
    ) -> "SqliteStore":
        """Open or create the store in `data_dir`. Raises ConfigError naming the directory."""
        worker = Worker("rampmeter-store")
        try:
            kept = await worker.run(lambda: _File(data_dir, synchronous=synchronous, log_rows=log_rows))
        except BaseException:
            worker.end()
            raise
        return cls(worker, kept)

    async def load(self, pool: str) -> StoredPool | None:
        return await self._run(lambda: self._file.pools.load(pool))

    async def commit(self, batch: Batch) -> None:
        await self._run(lambda: self._file.pools.commit(batch))

    async def log(self, pool: str) -> list[LogRow]:
        """The newest decisions, oldest first."""
        return await self._run(lambda: self._file.pools.log(pool))

    async def newest(self, pool: str) -> Position | None:
        head = await self._run(lambda: self._file.pools.head(pool))
        return head.position if head else None

    async def segment(self, pool: str) -> Segment | None:
        return await self._run(lambda: self._file.pools.segment(pool))

    async def lead(self, candidate: Candidate, ttl_s: float) -> Lead:  # noqa: ARG002  # the lock on the directory says so
        return Lead(leader=candidate, ttl_s=math.inf)

    async def resign(self, holder: str) -> None:  # noqa: ARG002
        return

    async def close(self) -> None:
        await self._run(self._file.close)
        self._worker.end()

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await self._worker.run(work)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self._file.path}: {error}") from error


def read_only_segment(data_dir: Path, pool: str) -> Segment | None:
    """The newest segment of a pool's log, also while a coordinator has the directory. Raises ConfigError."""
    path = data_dir / _FILE
    if not path.exists():
        raise ConfigError(f"data directory {data_dir} has no store: {path} is not there")
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
        ) as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version != SCHEMA:
                raise ConfigError(
                    f"{path} has schema {version}, this release reads {SCHEMA}: use the release that writes it"
                )
            return read_segment(db, pool)
    except sqlite3.Error as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


class _File:
    """The connection and its lock; lives in the store's thread."""

    def __init__(self, data_dir: Path, *, synchronous: str, log_rows: int) -> None:
        self.path = data_dir / _FILE
        self._lock = _take_directory(data_dir)
        try:
            self._db = _connect(self.path, synchronous)
        except BaseException:
            os.close(self._lock)
            raise
        self.pools = PoolFile(self._db, log_rows=log_rows)

    def close(self) -> None:
        self._db.close()
        os.close(self._lock)


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
        db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        migrate(db, path)
    except sqlite3.Error as error:
        raise ConfigError(f"{path} cannot be used: {error}") from error
    return db
