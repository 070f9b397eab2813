"""A coordinator that has forgotten the lives before it, under a clock that was set back since. What an agent has seen
takes their place: in what is answered, in the store and in the log.
"""

import asyncio
import copy

import fakeredis
import pytest

from rampmeter.core.clock import SystemClock
from rampmeter.core.messages import RefusalReason
from rampmeter_coordinator import opening
from rampmeter_coordinator.engine import Engine
from rampmeter_coordinator.errors import Refused
from rampmeter_coordinator.replay import replay
from rampmeter_coordinator.store.memory import MemoryStore
from rampmeter_coordinator.store.redis import RedisStore
from rampmeter_coordinator.store.sqlite import SqliteStore
from support.engines import POOL, registered
from support.fake_redis import FakeRedis
from support.stores import TestedStore

FIRST_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


@pytest.fixture
def set_back(monkeypatch):
    """The wall clock shows FIRST_MS; this sets it an hour back."""
    monkeypatch.setattr(opening, "_wall_ms", lambda: FIRST_MS)
    return lambda: monkeypatch.setattr(opening, "_wall_ms", lambda: FIRST_MS - HOUR_MS)


@pytest.fixture(params=["memory", "sqlite", "fakeredis"])
def empty_store(request, tmp_path):
    """A function that opens an empty store."""

    async def opened(name):
        if request.param == "memory":
            return MemoryStore()
        if request.param == "sqlite":
            return await SqliteStore.open(tmp_path / name)
        return await RedisStore.start(FakeRedis(server=fakeredis.FakeServer()))

    return opened


async def started(store):
    """A coordinator starts on this store; that it is empty means nothing to it."""
    return await Engine.open((POOL,), store, SystemClock(), boot_id="boot", fresh=True)


async def writer(engine):
    """A job that holds the whole budget."""
    (job,) = await registered(engine)
    await job.tell(engine, job.slot())
    return job


async def come_back(engine, job):
    """The agent was told that it is unknown: it registers, and asks again."""
    await job.tell(engine, job.register(seen_epoch=job.fence.epoch))
    await job.tell(engine, job.slot())


def test_nothing_that_is_given_out_is_below_what_an_agent_has_seen(set_back, empty_store):
    """The next lease has a higher fence; its epoch is kept with it, so that the next life begins above it."""

    async def scenario():
        before = await started(await empty_store("before"))
        job = await writer(before)
        seen = job.fence
        await before.close()
        set_back()
        store = await empty_store("after")
        engine = await started(store)
        assert engine.positions()["lustre"].epoch == FIRST_MS - HOUR_MS < seen.epoch
        await come_back(engine, job)
        assert job.fence > seen
        await engine.drain()
        next_life = await started(store)
        assert next_life.positions()["lustre"].epoch > job.fence.epoch
        await next_life.close()

    asyncio.run(scenario())


def test_a_replay_outgrows_the_same_epoch(set_back, empty_store):
    """The segment begins under the epoch of its start; the registration that raised it is in the log."""

    async def scenario():
        before = await started(await empty_store("before"))
        job = await writer(before)
        await before.close()
        set_back()
        store = await empty_store("after")
        engine = await started(store)
        await come_back(engine, job)
        await engine.drain()
        segment = await store.segment("lustre")
        await engine.close()
        return job, segment

    job, segment = asyncio.run(scenario())
    assert (segment.epoch, job.fence.epoch) == (FIRST_MS - HOUR_MS, FIRST_MS + 1)
    assert str(job.fence.epoch).encode() in segment.rows[-1].replies
    assert replay(segment).difference is None


async def refused(engine, request):
    """The engine finds that its pool was taken."""
    with pytest.raises(Refused) as caught:
        await engine.submit("lustre", request)
    assert caught.value.refusal.reason is RefusalReason.REPLACED
    assert engine.fenced


async def catch_up(engine, other, job):
    """The job speaks until the next commit of the other would go on from this one's, by its number."""
    while engine.positions()["lustre"].number < other.positions()["lustre"].number:
        await job.tell(engine, job.heartbeat())


def test_a_leader_of_before_writes_nothing_onto_what_came_after_it(set_back):
    """Its epoch is above that of the leader that found the store empty, and its number may fit."""

    async def scenario():
        store = TestedStore()
        old = await started(store)
        (job,) = await registered(old)
        store.forget("lustre")
        set_back()
        new = await started(store)
        (other,) = await registered(new)
        await catch_up(new, old, other)
        await refused(old, job.heartbeat())
        await other.tell(new, other.heartbeat())
        await old.drain()
        await new.close()

    asyncio.run(scenario())


def test_to_hear_of_a_later_epoch_is_no_right_to_take_the_pool(set_back):
    """A deposed leader to which a job comes from its successor stays deposed, also in a store that went back."""

    async def scenario():
        store = TestedStore()
        old = await started(store)
        kept = copy.deepcopy(store._pools)
        await registered(old, num=3)
        store._pools = kept
        new = await started(store)
        assert new.positions()["lustre"].epoch > old.positions()["lustre"].epoch
        (other,) = await registered(new)
        await other.tell(new, other.slot())
        await catch_up(new, old, other)
        other.attempt, other.seq, other.acked = 2, 0, 0
        await refused(old, other.register(seen_epoch=other.fence.epoch))
        await old.drain()
        await new.close()

    asyncio.run(scenario())
