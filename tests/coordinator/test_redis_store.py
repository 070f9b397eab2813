"""What only the Redis store has: a server with settings of its own that can go away, come back, and forget."""

import asyncio
import subprocess
import sys
import time

import pytest
from redis.asyncio import Redis

from rampmeter.core.errors import ConfigError
from rampmeter_coordinator.errors import LostCommits, StoreUnavailable
from rampmeter_coordinator.store import connection
from rampmeter_coordinator.store.redis import RedisStore
from support.batches import batch, candidate
from support.fake_redis import FakeRedis
from support.redis_server import redis_server

pytestmark = pytest.mark.debian("redis-server")


def test_a_server_that_may_evict_is_refused(tmp_path):
    """With any other policy than noeviction a lease could vanish; the message says what to set."""
    with (
        redis_server(tmp_path, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru") as url,
        pytest.raises(ConfigError, match="maxmemory-policy is allkeys-lru"),
    ):
        asyncio.run(RedisStore.open(url))


def test_no_server_is_store_unavailable():
    """A refused connection is reported at once, not after retries."""
    with pytest.raises(StoreUnavailable):
        asyncio.run(RedisStore.open("redis://127.0.0.1:1"))


def test_a_bad_url_is_a_config_error():
    """The store's address is a setting."""
    with pytest.raises(ConfigError, match="store"):
        asyncio.run(RedisStore.open("http://127.0.0.1:1"))


def test_the_script_is_loaded_again_when_the_server_has_forgotten_it(tmp_path):
    """SCRIPT FLUSH, a restart or a fail-over empty the script cache; a commit goes through all the same."""

    async def scenario(url):
        store = await RedisStore.open(url)
        await store.commit(batch(1))
        client = Redis.from_url(url)
        await client.script_flush()
        await client.aclose()
        await store.commit(batch(2))
        await store.close()

    with redis_server(tmp_path) as url:
        asyncio.run(scenario(url))


def test_a_full_server_is_store_unavailable_and_keeps_nothing(tmp_path):
    """Out of memory under noeviction refuses the whole batch."""

    async def scenario(url):
        store = await RedisStore.open(url)
        await store.commit(batch(1, records={"a": b"1"}))
        await store.commit(batch(2, records={"b": b"x" * 100_000}))
        client = Redis.from_url(url)
        await client.config_set("maxmemory", "1mb")
        with pytest.raises(StoreUnavailable, match="maxmemory"):
            await store.commit(batch(3, records={"a": b"3"}))
        await client.config_set("maxmemory", "0")
        await client.aclose()
        stored = await store.load("lustre")
        assert (stored.head.number, stored.records["a"]) == (2, b"1")
        await store.close()

    with redis_server(tmp_path) as url:
        asyncio.run(scenario(url))


def test_a_server_that_came_back_empty_is_noticed(tmp_path):
    """While the server is away commits fail; when it is back without its data they are lost commits."""

    async def scenario():
        with redis_server(tmp_path) as url:
            store = await RedisStore.open(url)
            await store.commit(batch(1))
        with pytest.raises(StoreUnavailable):
            await store.commit(batch(2))
        with redis_server(tmp_path):
            with pytest.raises(LostCommits):
                await store.commit(batch(2))
            await store.close()

    asyncio.run(scenario())


def test_another_server_process_may_have_lost_commits(tmp_path):
    """After a restart of the server its newest commits may be gone: not contiguous, even if everything looks well."""

    async def write(url):
        store = await RedisStore.open(url)
        await store.commit(batch(1, records={"a": b"1"}))
        await store.close()

    async def read(url):
        store = await RedisStore.open(url)
        stored = await store.load("lustre")
        await store.close()
        return stored

    with redis_server(tmp_path, "--appendonly", "yes") as url:
        asyncio.run(write(url))
        assert asyncio.run(read(url)).contiguous
    with redis_server(tmp_path, "--appendonly", "yes") as url:
        stored = asyncio.run(read(url))
    assert stored.records == {"a": b"1"}
    assert not stored.contiguous


def test_keys_of_a_pool_share_a_slot(tmp_path):
    """Every key carries the pool as its hash tag, so that one script may touch them all in a cluster."""

    async def scenario(url):
        store = await RedisStore.open(url)
        await store.commit(batch(1, records={"a": b"1"}))
        client = Redis.from_url(url)
        keys = [key.decode() for key in await client.keys("*")]
        await client.aclose()
        await store.close()
        return keys

    with redis_server(tmp_path) as url:
        keys = asyncio.run(scenario(url))
    assert keys
    assert all(key.startswith("rm:{lustre}:") for key in keys)


def test_the_store_is_only_imported_by_who_uses_it():
    """The redis package is an extra: the coordinator starts without it."""
    code = "import sys, rampmeter_coordinator.cli; sys.exit('redis' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_only_one_leads_until_its_lease_ends(tmp_path):
    """Others hear who leads, where and by which clock; giving up somebody else's lease changes nothing."""

    async def scenario(url):
        store, other = await RedisStore.open(url), await RedisStore.open(url)
        first = await store.lead(candidate("a", 10.5), 0.3)
        for _ in range(2):
            assert await other.lead(candidate("b", 99.0), 0.3) == first
            await other.resign("b" * 32)
        began_s = time.monotonic()
        while (await other.lead(candidate("b", 99.0), 0.3)).leader.holder == "a" * 32:
            assert time.monotonic() < began_s + 5
            await asyncio.sleep(0.01)
        assert (await store.lead(candidate("a", 11.0), 0.3)).leader == candidate("b", 99.0)
        await store.close()
        await other.close()

    with redis_server(tmp_path) as url:
        asyncio.run(scenario(url))


def test_commits_go_on_under_the_run_id_of_a_server_that_came_back(tmp_path):
    """A leader that finds its newest commit in a restarted server has lost nothing, and neither has the next one."""

    async def scenario():
        options = ("--appendonly", "yes")
        with redis_server(tmp_path, *options) as url:
            store = await RedisStore.open(url)
            await store.commit(batch(1))
        with redis_server(tmp_path, *options):
            assert not (await (await RedisStore.open(url)).load("lustre")).contiguous
            await store.lead(candidate("a"), 3.0)
            await store.commit(batch(2))
            assert (await (await RedisStore.open(url)).load("lustre")).contiguous

    asyncio.run(scenario())


def test_a_server_without_an_append_only_file_is_warned_of(tmp_path, caplog):
    """It serves, but the operator hears what a restart of it costs."""

    async def scenario(url):
        await (await RedisStore.open(url)).close()

    with redis_server(tmp_path) as url:
        asyncio.run(scenario(url))
    assert "no append-only file" in caplog.text


def test_a_call_that_never_ends_is_given_up(monkeypatch):
    """A client library that waits for ever must not hold up a pool for ever."""

    async def scenario():
        link = connection.Connection(connection.FixedServer(FakeRedis()))
        with pytest.raises(StoreUnavailable):
            await link.call(lambda client: asyncio.Event().wait())
        await link.close()

    monkeypatch.setattr(connection, "CALL_LIMIT_S", 0.05)
    asyncio.run(asyncio.wait_for(scenario(), 10))
