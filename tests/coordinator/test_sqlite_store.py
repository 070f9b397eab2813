"""What only the SQLite store has: a directory, a lock, a schema, a disk that can be full."""

import asyncio
import contextlib
import os
import random
import resource
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from rampmeter.core.errors import ConfigError
from rampmeter_coordinator.errors import StoreUnavailable
from rampmeter_coordinator.store import sqlite_file, sqlite_schema
from rampmeter_coordinator.store.protocol import LogRow
from rampmeter_coordinator.store.sqlite import SqliteStore, read_only_segment
from rampmeter_coordinator.store.sqlite_file import SPARE_VERSIONS
from rampmeter_coordinator.store.sqlite_schema import SCHEMA, unpack_records
from support.batches import batch, row


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


def test_the_newest_version_of_each_record_stays_and_the_file_small(tmp_path):
    """Whatever order records change, go and come back in: what is loaded is the newest, before and after reopening."""
    draw, expected = random.Random(5), {}

    async def some_commits(store):
        last = await newest_number(store)
        for number in range(last + 1, last + 400):
            # Most change all the time; some so seldom that they are carried on before, or in the same commit.
            keys = [draw.randrange(10) for _ in range(17)] + [draw.randrange(600) for _ in range(3)]
            changes = {f"job{key}": b"%d" % number for key in keys}
            for key in draw.sample(sorted(changes), 3):
                changes[key] = None
            expected.update(changes)
            await store.commit(batch(number, records=changes))
        return await versions_in(store)

    for _ in range(3):
        num_versions = opened(tmp_path, some_commits)
        assert opened(tmp_path, loaded).records == {k: v for k, v in expected.items() if v is not None}
        assert num_versions < 2 * 600 + SPARE_VERSIONS + 40


def test_records_that_never_change_outlive_the_rows_that_they_were_written_in(tmp_path, monkeypatch):
    """Old rows are dropped with what is current in them carried on; a commit that fails in the middle drops nothing."""

    def failing(rows):
        raise sqlite3.OperationalError("disk full")

    async def scenario(store):
        await store.commit(batch(1, records={"idle": b"kept", "gone": b"x"}))
        await store.commit(batch(2, records={"gone": None}))
        for number in range(3, 600):
            again = batch(
                number, records={f"job{index}": b"%d" % number for index in range(10)}, log=[row(1)]
            )
            with monkeypatch.context() as patched:
                patched.setattr(sqlite_file, "pack_rows", failing)
                with pytest.raises(StoreUnavailable):
                    await store.commit(again)
            await store.commit(again)
        stored = await store.load("lustre")
        assert stored.records == {"idle": b"kept"} | {f"job{index}": b"599" for index in range(10)}
        assert await versions_in(store) < 2 * 12 + SPARE_VERSIONS + 20

    opened(tmp_path, scenario, log_rows=50)


@pytest.mark.parametrize("log_rows", [1, 300])
def test_rows_that_the_log_needs_stay(tmp_path, log_rows):
    """The log is whole to its cap however many versions there are, and after that the file does not grow."""

    async def scenario(store):
        for number in range(1, 700):
            changes = {f"job{index}": b"%d" % number for index in range(10)}
            await store.commit(batch(number, records=changes, log=[row(number)] if number % 2 else []))
        assert await store.log("lustre") == [row(number) for number in range(1, 700, 2)][-log_rows:]
        return await versions_in(store)

    num_versions = opened(tmp_path, scenario, log_rows=log_rows)
    assert num_versions <= max(2 * 10 + SPARE_VERSIONS, 10 * 2 * log_rows) + 20


def test_decisions_that_change_no_record_do_not_let_the_file_grow(tmp_path):
    """Refused requests are logged, too: the log is whole to its cap, what is idle stays, the file stays small."""

    async def some_commits(store):
        last = await newest_number(store)
        for number in range(last + 1, last + 201):
            records = (
                {"idle": b"kept", "gone": b"x"} if number == 1 else {"gone": None} if number == 2 else {}
            )
            await store.commit(batch(number, records=records, log=[row(number)] * 3))
        assert (
            await store.log("lustre")
            == [row(i) for i in range(number - 17, number + 1) for _ in range(3)][-50:]
        )
        return await rows_in(store)

    for _ in range(3):
        num_rows = opened(tmp_path, some_commits, log_rows=50)
        assert opened(tmp_path, loaded).records == {"idle": b"kept"}
        assert num_rows * 3 <= 2 * (50 + 2) + 3 * 2


def test_questions_whether_the_store_keeps_commits_do_not_let_the_file_grow(tmp_path):
    """Each is a commit of nothing; none of them hides what was there before."""

    async def scenario(store):
        await store.commit(batch(1, records={"idle": b"kept"}, log=[row(1)]))
        for number in range(2, 200):
            await store.commit(batch(number))
        return await rows_in(store)

    assert opened(tmp_path, scenario) == 2
    assert opened(tmp_path, loaded).head.number == 199
    assert opened(tmp_path, loaded).records == {"idle": b"kept"}


async def rows_in(store):
    """How many commits the file holds."""
    db = store._file._db
    return await store._run(lambda: db.execute("SELECT count(*) FROM commits").fetchone()[0])


async def loaded(store):
    return await store.load("lustre")


async def newest_number(store):
    position = await store.newest("lustre")
    return position.number if position else 0


async def versions_in(store):
    """How many versions of records the file holds."""
    db = store._file._db
    rows = await store._run(lambda: db.execute("SELECT records FROM commits").fetchall())
    return sum(len(unpack_records(packed)) for (packed,) in rows)


FIRST_SCHEMA = """
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
INSERT INTO heads VALUES ('lustre', 3, 5, 'one', 'boot', 13.5, 31.0, 0.0, X'7B7D');
INSERT INTO records VALUES ('lustre', 'a', X'31'), ('lustre', 'b', X'32'), ('scratch', 'a', X'33');
INSERT INTO log VALUES ('lustre', 7, 1.5, X'63', X'72'), ('lustre', 8, 2.5, X'64', X'73');
PRAGMA user_version = 1;
"""


def test_a_file_of_the_first_release_is_brought_up_to_date(tmp_path):
    """Head, records and log are there, and the pool goes on; the log's numbers too."""
    with contextlib.closing(sqlite3.connect(tmp_path / "rampmeter.sqlite3")) as db:
        db.executescript(FIRST_SCHEMA)

    async def scenario(store):
        stored = await store.load("lustre")
        assert (stored.head, stored.meta) == (batch(3).head, b"{}")
        assert stored.records == {"a": b"1", "b": b"2"}
        old = [LogRow(now_s=1.5, command=b"c", replies=b"r"), LogRow(now_s=2.5, command=b"d", replies=b"s")]
        assert await store.log("lustre") == old
        await store.commit(batch(4, records={"a": b"9"}, log=[row(1)], opening=b"{}"))
        await store.commit(batch(5, log=[row(2)]))
        assert await store.log("lustre") == [*old, row(1), row(2)]
        assert (await store.segment("lustre")).rows == (row(2),)

    opened(tmp_path, scenario)
    assert opened(tmp_path, loaded).records == {"a": b"9", "b": b"2"}


def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    """Whole or not at all: the release before can still read it."""
    path = tmp_path / "rampmeter.sqlite3"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript(FIRST_SCHEMA)

    def failing(rows):
        raise sqlite3.OperationalError("disk full")

    monkeypatch.setattr(sqlite_schema, "pack_rows", failing)
    with pytest.raises(ConfigError, match="disk full"):
        opened(tmp_path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
        assert db.execute("SELECT count(*) FROM records").fetchone() == (3,)
        assert {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")} == {
            "heads",
            "records",
            "log",
        }


def test_the_log_can_be_read_while_the_coordinator_has_the_directory(tmp_path):
    """Read only, without the lock; a directory without a store and a file of another release are named."""

    async def scenario(store):
        await store.commit(batch(1, opening=b"{}"))
        await store.commit(batch(2, log=[row(1)]))
        assert read_only_segment(tmp_path, "lustre").rows == (row(1),)
        assert read_only_segment(tmp_path, "other") is None

    opened(tmp_path, scenario)
    with pytest.raises(ConfigError, match="nowhere has no store"):
        read_only_segment(tmp_path / "nowhere", "lustre")
    with contextlib.closing(sqlite3.connect(tmp_path / "rampmeter.sqlite3")) as db:
        db.execute("PRAGMA user_version = 1")
    with pytest.raises(ConfigError, match="has schema 1"):
        read_only_segment(tmp_path, "lustre")
