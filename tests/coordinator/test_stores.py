"""One contract for every store: memory, SQLite, fakeredis, a real Redis server, and Valkey."""

import asyncio
import json

import fakeredis
import pytest

from rampmeter_coordinator.errors import Fenced, LostCommits
from rampmeter_coordinator.store.memory import MemoryStore
from rampmeter_coordinator.store.protocol import Position
from rampmeter_coordinator.store.redis import RedisStore
from rampmeter_coordinator.store.sqlite import SqliteStore
from support.batches import batch, candidate, row
from support.fake_redis import FakeRedis
from support.redis_server import redis_server, valkey_program

LOG_ROWS = 50


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        "fakeredis",
        pytest.param("redis", marks=pytest.mark.debian("redis-server")),
        "valkey",
    ]
)
def open_store(request, tmp_path):
    """A function that opens the same store again and again."""
    if request.param == "memory":
        store = MemoryStore(log_rows=LOG_ROWS)

        async def open_memory():
            return store

        yield open_memory
    elif request.param == "sqlite":
        yield lambda: SqliteStore.open(tmp_path / "data", log_rows=LOG_ROWS)
    elif request.param == "fakeredis":
        server = fakeredis.FakeServer()
        yield lambda: RedisStore.start(FakeRedis(server=server), log_rows=LOG_ROWS)
    else:
        program = valkey_program() if request.param == "valkey" else "redis-server"
        with redis_server(tmp_path, program=program) as url:
            yield lambda: RedisStore.open(url, log_rows=LOG_ROWS)


async def log_of(store, pool="lustre"):
    """The log of any store."""
    found = store.log(pool)
    return found if isinstance(found, list) else await found


def run(scenario, open_store):
    """Run a scenario on an open store."""

    async def whole():
        store = await open_store()
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(whole())


def test_nothing_is_known_of_a_new_pool(open_store):
    """A pool without a commit is None, not an empty pool."""

    async def scenario(store):
        assert await store.load("lustre") is None

    run(scenario, open_store)


def test_a_commit_is_there_after_reopening(open_store):
    """Records, meta and head come back as they were committed, bytes for bytes."""
    first = batch(1, records={"a": b"1", "b": b"\x00\xff"}, meta=b'{"m":1}')

    async def write(store):
        await store.commit(first)

    async def read(store):
        stored = await store.load("lustre")
        assert (stored.head, stored.records, stored.meta) == (first.head, first.changes.records, b'{"m":1}')
        assert stored.contiguous

    run(write, open_store)
    run(read, open_store)


def test_records_change_and_go(open_store):
    """A later commit replaces and deletes records; others stay; deleting what is not there is no error."""

    async def scenario(store):
        await store.commit(batch(1, records={"a": b"1", "b": b"1", "c": b"1"}))
        await store.commit(batch(2, records={"a": b"2", "b": None, "never": None}))
        assert (await store.load("lustre")).records == {"a": b"2", "c": b"1"}

    run(scenario, open_store)


def test_pools_do_not_see_each_other(open_store):
    """Numbers, records and logs are per pool."""

    async def scenario(store):
        await store.commit(batch(1, records={"a": b"1"}, log=[row(1)]))
        await store.commit(batch(1, pool="scratch", records={"a": b"x"}, log=[row(2)]))
        await store.commit(batch(2, pool="scratch", records={"a": None}))
        assert (await store.load("lustre")).records == {"a": b"1"}
        assert (await store.load("scratch")).records == {}
        assert len(await log_of(store)) == 1

    run(scenario, open_store)


def test_the_same_batch_twice_lands_once(open_store):
    """A batch that is sent again after an unknown outcome is taken, and its log is not doubled."""

    async def scenario(store):
        again = batch(1, records={"a": b"1"}, log=[row(1), row(2)])
        await store.commit(again)
        await store.commit(again)
        assert len(await log_of(store)) == 2
        await store.commit(batch(2, records={"a": b"2"}))
        assert (await store.load("lustre")).head.number == 2

    run(scenario, open_store)


def test_a_lower_epoch_is_fenced_and_changes_nothing(open_store):
    """When a newer coordinator has claimed the pool, the older one cannot write any more."""

    async def scenario(store):
        await store.commit(batch(1, epoch=5, records={"a": b"old"}))
        await store.commit(batch(2, epoch=6, records={"a": b"new"}))
        with pytest.raises(Fenced):
            await store.commit(batch(3, epoch=5, records={"a": b"late"}, log=[row(9)]))
        stored = await store.load("lustre")
        assert (stored.head.number, stored.head.epoch, stored.records) == (2, 6, {"a": b"new"})
        assert await log_of(store) == []

    run(scenario, open_store)


def test_only_a_claim_goes_on_from_what_another_has_written(open_store):
    """In a store that was emptied the next number may be right by chance, and the epoch higher than the new one."""

    async def scenario(store):
        await store.commit(batch(1, epoch=5, records={"a": b"new"}, opening=b"{}"))
        with pytest.raises(Fenced):
            await store.commit(batch(2, epoch=9, writer="two", records={"a": b"old"}))
        await store.commit(batch(2, epoch=5))
        assert (await store.load("lustre")).records == {"a": b"new"}
        await store.commit(batch(3, epoch=9, writer="two", opening=b"{}"))
        assert await store.newest("lustre") == Position(epoch=9, number=3, writer="two")

    run(scenario, open_store)


def test_of_two_that_start_at_once_only_one_gets_the_pool(open_store):
    """Two coordinators that loaded the same number cannot both claim it, whichever epoch is higher."""

    async def scenario(store):
        await store.commit(batch(1, epoch=5))
        await store.commit(batch(2, epoch=6))
        with pytest.raises(Fenced):
            await store.commit(batch(2, epoch=7))
        for number in (2, 3):
            with pytest.raises(Fenced):  # started in the same millisecond: the same epoch
                await store.commit(batch(number, epoch=6, writer="two"))

    run(scenario, open_store)


def test_a_store_that_went_back_is_noticed(open_store):
    """A number that skips one means that the store has lost commits."""

    async def scenario(store):
        with pytest.raises(LostCommits):
            await store.commit(batch(2, records={"a": b"1"}))
        assert await store.load("lustre") is None
        await store.commit(batch(1))
        with pytest.raises(LostCommits):
            await store.commit(batch(3))

    run(scenario, open_store)


def test_the_log_keeps_the_newest_rows(open_store):
    """The log is in order and capped."""

    async def scenario(store):
        for number in range(1, 41):
            await store.commit(batch(number, log=[row(2 * number), row(2 * number + 1)]))
        rows = await log_of(store)
        assert rows[-1] == row(81)
        assert len(rows) == LOG_ROWS
        assert [json.loads(kept.replies)[0]["seq"] for kept in rows] == list(range(32, 82))

    run(scenario, open_store)


def test_large_batches_land_whole(open_store):
    """Thousands of records and rows in one commit are no problem."""
    records = {f"{index:032x}": b"x" * 500 for index in range(10_000)}

    async def scenario(store):
        await store.commit(batch(1, records=records, log=[row(index) for index in range(10_000)]))
        await store.commit(batch(2, records=dict.fromkeys(list(records)[:9_000])))
        assert len((await store.load("lustre")).records) == 1_000

    run(scenario, open_store)


def test_how_far_a_pool_has_come_is_known_without_its_records(open_store):
    """Epoch, number and writer of the newest commit; None before the first."""

    async def scenario(store):
        assert await store.newest("lustre") is None
        await store.commit(batch(1, epoch=5, writer="one"))
        await store.commit(batch(2, epoch=6, writer="two", opening=b"{}"))
        assert await store.newest("lustre") == Position(epoch=6, number=2, writer="two")

    run(scenario, open_store)


def test_who_asks_while_nobody_leads_leads_and_goes_on_leading(open_store):
    """Every request of the leader extends its lease; the answer is what it said last."""

    async def scenario(store):
        for now_s in (10.5, 11.5):
            lead = await store.lead(candidate("a", now_s), 3.0)
            assert lead.leader == candidate("a", now_s)
            assert lead.ttl_s >= 3.0
        await store.resign("a" * 32)
        assert (await store.lead(candidate("b"), 3.0)).leader == candidate("b")

    run(scenario, open_store)


def test_a_segment_of_the_log_begins_with_a_copy_of_what_was_there(open_store):
    """Records, meta and decisions since the newest opening, also after reopening; what came before is not in it."""

    async def write(store):
        assert await store.segment("lustre") is None
        await store.commit(batch(1, records={"a": b"1", "b": b"1"}, log=[row(1)]))
        assert await store.segment("lustre") is None
        await store.commit(batch(2, records={"a": b"2"}, meta=b"then", opening=b"{}", epoch=6))
        assert (await store.segment("lustre")).rows == ()
        await store.commit(batch(3, records={"a": b"3", "b": None}, log=[row(2), row(3)], epoch=6))
        await store.commit(batch(1, pool="scratch", opening=b"other"))

    async def read(store):
        kept = await store.segment("lustre")
        assert (kept.epoch, kept.opening, kept.meta) == (6, b"{}", b"then")
        assert kept.records == {"a": b"2", "b": b"1"}
        assert (kept.rows, kept.num_missing) == ((row(2), row(3)), 0)
        await store.commit(batch(4, meta=b"now", opening=b"new", epoch=7))
        kept = await store.segment("lustre")
        assert (kept.opening, kept.meta, kept.records, kept.rows) == (b"new", b"now", {"a": b"3"}, ())

    run(write, open_store)
    run(read, open_store)


def test_a_segment_says_what_the_log_has_dropped(open_store):
    """The log is capped: how many decisions since the opening are gone is known."""

    async def scenario(store):
        await store.commit(batch(1, opening=b"{}"))
        for number in range(2, 42):
            await store.commit(batch(number, log=[row(number)] * 2))
        kept = await store.segment("lustre")
        assert (len(kept.rows), kept.num_missing) == (LOG_ROWS, 80 - LOG_ROWS)

    run(scenario, open_store)
