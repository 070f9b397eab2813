"""Redis behind Sentinel: the URL, what a master must be set to, and how the way to the new master is found."""

import asyncio

import pytest

from rampmeter.core.errors import ConfigError
from rampmeter_coordinator.errors import LostCommits, StoreUnavailable
from rampmeter_coordinator.store.redis import RedisStore
from rampmeter_coordinator.store.sentinel import parse_sentinel
from support.batches import batch
from support.redis_process import RedisProcess, SentinelProcess, running_redis, sentinel_service
from support.waiting import wait_for


def test_a_url_names_sentinels_service_and_database():
    """Ports have a default, IPv6 stands in brackets, user and password are those of the master."""
    address = parse_sentinel("redis+sentinel://me:p%40ss@10.0.0.1:26380,[fe80::1],three/ckpt/2")
    assert address.sentinels == (("10.0.0.1", 26380), ("fe80::1", 26379), ("three", 26379))
    assert (address.service, address.database) == ("ckpt", 2)
    assert (address.username, address.password) == ("me", "p@ss")


@pytest.mark.parametrize("rest", ["", "h:1", "h:1/", "/service", "h:x/service", "h:1/service/zero"])
def test_a_url_that_lacks_something_is_refused_with_an_example(rest):
    """Guessing a service would find another one's master."""
    with pytest.raises(ConfigError, match="must look like"):
        parse_sentinel(f"redis+sentinel://{rest}")


@pytest.mark.debian("redis-server")
def test_a_master_that_takes_writes_without_replicas_is_refused(tmp_path):
    """After a fail-over there could be two masters that both take commits."""
    master = RedisProcess(tmp_path / "master")
    sentinel = SentinelProcess(tmp_path / "sentinel", master)
    with running_redis(master, sentinel), pytest.raises(ConfigError, match="min-replicas-to-write"):
        asyncio.run(RedisStore.open(sentinel.url))


def test_no_sentinel_is_store_unavailable():
    """The supervisor shall try again."""
    with pytest.raises(StoreUnavailable):
        asyncio.run(RedisStore.open("redis+sentinel://127.0.0.1:1/service/0"))


@pytest.mark.system
@pytest.mark.debian("redis-server")
def test_the_store_follows_a_fail_over(tmp_path):
    """Commits fail while there is no master, go on where nothing was lost, and are refused where something was."""

    async def scenario(master, follower, lagging, sentinel):
        store = await RedisStore.open(sentinel.url)
        await store.commit(batch(1, records={"a": b"1"}))
        lagging.freeze()
        await store.commit(batch(2, records={"a": b"2"}))
        wait_for(lambda: _offset(follower) >= master.info()["master_repl_offset"] - 100, what="the replica")
        master.kill()
        with pytest.raises(StoreUnavailable):
            await store.commit(batch(3))
        lagging.thaw()
        wait_for(lambda: sentinel.master_port() not in (None, master.port), what="the fail-over")
        for _ in range(300):
            try:
                await store.commit(batch(3, records={"a": b"3"}))
                break
            except StoreUnavailable:
                await asyncio.sleep(0.1)
        stored = await store.load("lustre")
        assert (stored.head.number, stored.records) == (3, {"a": b"3"})
        assert not stored.contiguous
        assert stored.overlap_s == 5.0
        with pytest.raises(LostCommits):
            await store.commit(batch(9))
        await store.close()

    with sentinel_service(tmp_path) as servers:
        asyncio.run(scenario(*servers))


def _offset(server):
    return (server.info() or {}).get("slave_repl_offset", 0)
