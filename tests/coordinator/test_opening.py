"""What a coordinator may believe of what it finds: epochs grow; grace is skipped only if nothing can be out there."""

import asyncio
from dataclasses import replace

import pytest

from rampmeter.core.clock import ManualClock
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.model.records import Job
from rampmeter_coordinator.model.shifting import ClockOffset
from rampmeter_coordinator.opening import Known, open_pool
from rampmeter_coordinator.store.memory import MemoryStore
from rampmeter_coordinator.store.protocol import Position
from support.jobs import Job as JobTalk

POOL = PoolConfig(name="lustre", capacity_bytes_per_s=10**9)


def grace_s(opened, clock):
    """How long this pool serves only holders from now on."""
    return opened.ledger.pool_view(clock.now()).grace_left_s


async def started(store, clock, *, boot_id="boot", fresh=False, config=POOL, **more):
    """A coordinator starts on this store."""
    return await open_pool(config, store, clock, boot_id=boot_id, fresh=fresh, **more)


def apart(offset_s):
    """Knows the clock of boot `there`, which is so far from the own one, give or take a second."""
    offset = ClockOffset(earlier_s=offset_s - 1.0, later_s=offset_s + 1.0)
    return lambda boot_id: offset if boot_id == "there" else None


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


async def with_a_lease(store, clock, *, boot_id):
    """A pool with one writer, as the coordinator of `boot_id` kept it."""
    opened = await started(store, clock, boot_id=boot_id, fresh=True)
    job = JobTalk()
    for say in (job.register, job.heartbeat, job.slot):
        opened.ledger.apply(say(), clock.now())
        job.acked = job.seq
    await store.commit(opened.batch(opened.ledger.take_changes(), (), clock.now()))
    return job.uid


def test_a_standby_that_knows_the_clock_of_the_other_machine_needs_no_grace():
    """The leases of the machine that died go on, until a little later than they would have ended there."""

    async def scenario():
        store, there = MemoryStore(), ManualClock(9000.0)
        uid = await with_a_lease(store, there, boot_id="there")
        (offer,) = Job.from_bytes((await store.load("lustre")).records[uid]).lease.offers
        here = ManualClock(503.0)  # 3 s after the last commit, on a clock that is 8500 s behind
        opened = await started(store, here, boot_id="here", offset_of=apart(-8500.0))
        assert grace_s(opened, here) == 0
        stored = await store.load("lustre")
        assert stored.head.boot_id == "here"
        (moved,) = Job.from_bytes(stored.records[uid]).lease.offers
        assert moved.until_s == offer.until_s - 8499.0
        assert opened.ledger.pool_view(here.now()).num_leases == 1

    asyncio.run(scenario())


def test_an_offset_that_puts_the_newest_commit_into_the_future_is_not_believed():
    """Times of a clock that was learned wrongly must not be read."""

    async def scenario():
        store = MemoryStore()
        await with_a_lease(store, ManualClock(9000.0), boot_id="there")
        here = ManualClock(400.0)
        opened = await started(store, here, boot_id="here", offset_of=apart(-8500.0))
        assert grace_s(opened, here) == POOL.grace_s

    asyncio.run(scenario())


@pytest.mark.parametrize("ours", [False, True])
def test_a_store_behind_what_this_process_has_seen_means_grace(ours):
    """A fail-over that lost commits is noticed even if the store itself does not know."""

    async def scenario():
        store, clock = MemoryStore(), ManualClock()
        head = (await started(store, clock, fresh=True)).head
        seen = Position(epoch=head.epoch, number=head.number + 1, writer=head.writer)
        opened = await started(store, clock, known=Known(position=seen, ours=ours))
        assert grace_s(opened, clock) == POOL.grace_s

    asyncio.run(scenario())


@pytest.mark.parametrize(("ours", "expected_s"), [(True, 0.0), (False, POOL.grace_s)])
def test_the_own_newest_commit_in_a_doubtful_store_is_proof(ours, expected_s):
    """Who made the newest commit knows that none was lost; who only watched does not."""

    async def scenario():
        store, clock = Forgetful(), ManualClock()
        head = (await started(store, clock, fresh=True)).head
        opened = await started(store, clock, known=Known(position=head.position, ours=ours))
        assert grace_s(opened, clock) == expected_s

    asyncio.run(scenario())


def test_an_empty_store_that_had_commits_is_not_fresh():
    """The operator's word is about the beginning, not about a store that lost everything since."""

    async def scenario():
        clock = ManualClock()
        seen = Known(position=Position(epoch=5, number=7, writer="x"), ours=False)
        assert grace_s(await started(MemoryStore(), clock, fresh=True, known=seen), clock) == POOL.grace_s

    asyncio.run(scenario())


@pytest.mark.parametrize("remembers", [False, True])
def test_grace_is_longer_where_an_old_server_may_still_take_commits(remembers):
    """A deposed master grants until it notices: those leases end that much later, whatever this process remembers."""

    class Replaced(Forgetful):
        async def load(self, pool):
            stored = await super().load(pool)
            return stored and replace(stored, overlap_s=12.0)

    async def scenario():
        store, clock = Replaced(), ManualClock()
        head = (await started(store, clock, fresh=True)).head
        known = Known(position=head.position, ours=True) if remembers else None
        assert grace_s(await started(store, clock, known=known), clock) == POOL.grace_s + 12.0

    asyncio.run(scenario())


def test_the_next_epoch_is_above_the_one_that_the_store_has_lost():
    """Also where the wall clock was set back below it: fences of that epoch may still be in use."""

    async def scenario():
        clock = ManualClock()
        lost = Position(epoch=2**51, number=7, writer="x")
        opened = await started(MemoryStore(), clock, known=Known(position=lost, ours=False))
        assert opened.head.epoch == lost.epoch + 1

    asyncio.run(scenario())
