"""What only the SQLite store has: a directory, a lock, a schema, a disk that can be full."""

import asyncio
import os
import resource
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from rampmeter.core.errors import ConfigError
from rampmeter_coordinator.errors import StoreUnavailable
from rampmeter_coordinator.store.sqlite import SCHEMA, SqliteStore
from support.batches import batch


def opened(directory, work=None, **options):
    """Open the store, do something with it, close it."""

    async def whole():
        store = await SqliteStore.open(directory, **options)
        try:
            return await work(store) if work else None
        finally:
            await store.close()

    return asyncio.run(whole())


def test_two_coordinators_cannot_share_a_directory(tmp_path):
    """The second one is told who has it, and the first one goes on."""

    async def scenario(store):
        with pytest.raises(ConfigError, match=rf"belongs to a running coordinator \(process {os.getpid()}\)"):
            await SqliteStore.open(tmp_path)
        await store.commit(batch(1))

    opened(tmp_path, scenario)
    opened(tmp_path)


def test_a_newer_schema_is_refused(tmp_path):
    """A file of a newer version is left alone."""
    opened(tmp_path)
    with sqlite3.connect(tmp_path / "rampmeter.sqlite3") as db:
        db.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    with pytest.raises(ConfigError, match="newer coordinator"):
        opened(tmp_path)
    with pytest.raises(ConfigError, match="newer coordinator"):  # and the lock was let go
        opened(tmp_path)


def test_what_is_no_database_is_refused_by_name(tmp_path):
    """A file that is something else is a ConfigError that names it."""
    (tmp_path / "rampmeter.sqlite3").write_bytes(b"something else" * 1000)
    with pytest.raises(ConfigError, match=r"rampmeter\.sqlite3 cannot be used"):
        opened(tmp_path)


def test_a_directory_that_cannot_be_made_is_refused_by_name(tmp_path):
    """A path below a file cannot become a directory; the message names it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"data directory .*file/below cannot be used: Not a directory"):
        opened(tmp_path / "file" / "below")


def test_an_unwritable_directory_is_refused_by_name():
    """A directory where nothing can be created is a ConfigError that names it; root may not write to /proc either."""
    with pytest.raises(ConfigError, match="data directory /proc/self/fdinfo"):
        opened(Path("/proc/self/fdinfo"))


@pytest.mark.parametrize(("word", "level"), [("normal", 1), ("full", 2)])
def test_synchronous_is_set(tmp_path, word, level):
    """The operator's choice reaches SQLite, and the journal is a write-ahead log."""

    async def scenario(store):
        db = store._file._db
        settings = await store._run(
            lambda: [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "journal_mode")]
        )
        assert settings == [level, "wal"]

    opened(tmp_path, scenario, synchronous=word)


def test_a_full_disk_is_store_unavailable_and_passes(tmp_path):
    """A commit that finds no room keeps nothing and says so; the same commit lands when there is room again."""

    async def scenario(store):
        await store.commit(batch(1, records={"a": b"1"}))
        big = batch(2, records={"a": b"2", "b": os.urandom(4_000_000)})
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
        try:
            with pytest.raises(StoreUnavailable):
                await store.commit(big)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert (await store.load("lustre")).records == {"a": b"1"}
        await store.commit(big)
        assert (await store.load("lustre")).head.number == 2

    opened(tmp_path, scenario)


def test_the_loop_turns_while_a_commit_takes_long(tmp_path):
    """The connection is in a thread of its own: a slow commit holds up nobody else."""

    async def scenario(store):
        blocker = sqlite3.connect(tmp_path / "rampmeter.sqlite3", isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        commit = asyncio.ensure_future(store.commit(batch(1)))
        for _ in range(20):
            await asyncio.sleep(0.005)
        assert not commit.done()
        blocker.execute("ROLLBACK")
        blocker.close()
        await commit

    opened(tmp_path, scenario)


def test_the_lock_dies_with_the_process(tmp_path):
    """kill -9 leaves a lock file, but no lock."""
    code = (
        "import asyncio, os, pathlib, sys\n"
        "from rampmeter_coordinator.store.sqlite import SqliteStore\n"
        "async def main():\n"
        "    await SqliteStore.open(pathlib.Path(sys.argv[1]))\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == -9
    assert (tmp_path / "lock").exists()
    opened(tmp_path)
