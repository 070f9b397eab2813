"""What a coordinator may believe of what it finds: epochs grow; grace is skipped only if nothing can be out there."""

import asyncio
from dataclasses import replace

import pytest

from rampmeter.core.clock import ManualClock
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.opening import open_pool
from rampmeter_coordinator.store.memory import MemoryStore

POOL = PoolConfig(name="lustre", capacity_bytes_per_s=10**9)


def grace_s(opened, clock):
    """How long this pool serves only holders from now on."""
    return opened.ledger.pool_view(clock.now()).grace_left_s


async def started(store, clock, *, boot_id="boot", fresh=False, config=POOL):
    """A coordinator starts on this store."""
    return await open_pool(config, store, clock, boot_id=boot_id, fresh=fresh)


class Forgetful(MemoryStore):
    """A store that says that it may have lost its newest commits."""

    async def load(self, pool):
        stored = await super().load(pool)
        return stored and replace(stored, contiguous=False)


def test_an_empty_store_means_grace():
    """Nobody knows what an empty store has forgotten."""

    async def scenario():
        clock = ManualClock()
        assert grace_s(await started(MemoryStore(), clock), clock) == POOL.grace_s

    asyncio.run(scenario())


def test_an_operator_may_say_that_an_empty_store_is_fresh():
    """`fresh` states that these pools never served anybody."""

    async def scenario():
        clock = ManualClock()
        assert grace_s(await started(MemoryStore(), clock, fresh=True), clock) == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("fresh", [False, True])
def test_fresh_means_nothing_where_something_is_stored(fresh):
    """A store of another boot calls for grace whatever the operator says."""

    async def scenario():
        store, clock = MemoryStore(), ManualClock()
        await started(store, clock, fresh=True)
        assert grace_s(await started(store, clock, boot_id="other", fresh=fresh), clock) == POOL.grace_s

    asyncio.run(scenario())


def test_the_same_boot_goes_on_without_grace():
    """A restarted process on the same machine has lost nothing."""

    async def scenario():
        store, clock = MemoryStore(), ManualClock()
        await started(store, clock, fresh=True)
        clock.advance(100)
        assert grace_s(await started(store, clock), clock) == 0

    asyncio.run(scenario())


def test_an_unknown_boot_is_never_the_same():
    """Where the system has no boot id, a restart may have been a reboot."""

    async def scenario():
        store, clock = MemoryStore(), ManualClock()
        await started(store, clock, boot_id="unknown", fresh=True)
        assert grace_s(await started(store, clock, boot_id="unknown"), clock) == POOL.grace_s

    asyncio.run(scenario())


def test_a_store_that_may_have_lost_commits_means_grace():
    """Not contiguous, not believed."""

    async def scenario():
        store, clock = Forgetful(), ManualClock()
        await started(store, clock, fresh=True)
        assert grace_s(await started(store, clock), clock) == POOL.grace_s

    asyncio.run(scenario())


def test_a_clock_that_went_back_means_grace():
    """Times of the same boot never go back; if they do, they are of another machine or snapshot."""

    async def scenario():
        store = MemoryStore()
        await started(store, ManualClock(5000.0), fresh=True)
        clock = ManualClock(4000.0)
        assert grace_s(await started(store, clock), clock) == POOL.grace_s

    asyncio.run(scenario())


def test_a_grace_that_was_running_starts_anew():
    """A crash during grace does not cut it short, and leases re-created in it are covered to their end."""

    async def scenario():
        store, clock = MemoryStore(), ManualClock()
        await started(store, clock)
        clock.advance(POOL.grace_s - 1)
        assert grace_s(await started(store, clock), clock) == POOL.grace_s
        clock.advance(POOL.grace_s + 1)
        assert grace_s(await started(store, clock), clock) == 0

    asyncio.run(scenario())


def test_grace_covers_the_leases_of_the_configuration_before():
    """When the lease length is lowered together with a reboot, leases of the old length are still out there."""

    async def scenario():
        store, clock = MemoryStore(), ManualClock()
        long = replace(POOL, ttl_s=600.0)
        await started(store, clock, fresh=True, config=long)
        assert grace_s(await started(store, clock, boot_id="other"), clock) == long.grace_s

    asyncio.run(scenario())


def test_epochs_grow_even_if_the_wall_clock_goes_back():
    """The next epoch is above the stored one, and from the wall clock where nothing is stored."""

    async def scenario():
        store, clock = MemoryStore(), ManualClock()
        first = await started(store, clock)
        assert first.head.epoch > 1_700_000_000_000
        ahead = first.batch(first.ledger.take_changes(), (), clock.now())
        await store.commit(replace(ahead, head=replace(ahead.head, epoch=9_000_000_000_000)))
        assert (await started(store, clock)).head.epoch == 9_000_000_000_001

    asyncio.run(scenario())


def test_opening_claims_the_pool_with_a_commit():
    """Before anybody is served the new epoch is stored, so that the coordinator before is fenced."""

    async def scenario():
        store, clock = MemoryStore(), ManualClock()
        first = await started(store, clock)
        second = await started(store, clock)
        stored = await store.load("lustre")
        assert (stored.head.number, stored.head.epoch) == (2, second.head.epoch)
        assert second.head.epoch > first.head.epoch

    asyncio.run(scenario())
