"""The lead: counted from before it was asked for, never believed for longer, handed over at once."""

import asyncio

from rampmeter.core.clock import ManualClock
from rampmeter_coordinator.leadership import LEASE_S, POLL_S, RENEW_S, STAND_BACK_S, Leadership
from support.shared_store import SharedStore


def member(store, clock, name="a"):
    """One process that would lead."""
    return Leadership(store, clock, url=f"http://{name}:8000", boot_id="boot")


def test_the_lead_counts_from_before_it_was_asked_for():
    """A store that answers late gives that much less."""

    async def scenario():
        clock = ManualClock()
        store = SharedStore(clock)
        lead = store.lead

        async def slow(candidate, ttl_s):
            found = await lead(candidate, ttl_s)
            clock.advance(2.5)
            return found

        store.lead = slow
        leadership = member(store, clock)
        assert await leadership.poll()
        assert leadership.leads
        clock.advance(LEASE_S - 2.5)
        assert not leadership.leads

    asyncio.run(scenario())


def test_a_store_that_is_away_lets_the_lead_run_out():
    """Failed polls neither end nor prolong it."""

    async def scenario():
        clock = ManualClock()
        store = SharedStore(clock)
        leadership = member(store, clock)
        await leadership.poll()
        store.down = True
        clock.advance(LEASE_S - 0.1)
        assert not await leadership.poll()
        assert not leadership.heard
        assert leadership.leads
        clock.advance(0.1)
        assert not await leadership.poll()
        assert not leadership.leads

    asyncio.run(scenario())


def test_others_know_who_leads_and_forget_it_when_they_hear_nothing():
    """Where the leader answers is known for a lease's length after the last look."""

    async def scenario():
        clock = ManualClock()
        store = SharedStore(clock)
        first, second = member(store, clock, "a"), member(store, clock, "b")
        await first.poll()
        news = second.news()
        await second.poll()
        assert (second.leads, second.other.url) == (False, "http://a:8000")
        assert news.is_set()
        over = second.other.over
        store.down = True
        clock.advance(LEASE_S)
        assert second.other is None
        assert over.is_set()

    asyncio.run(scenario())


def test_who_resigns_leads_no_more_and_the_next_one_leads_at_once():
    """No lease has to run out; what was on its way to the old leader hears of it."""

    async def scenario():
        clock = ManualClock()
        store = SharedStore(clock)
        first, second = member(store, clock, "a"), member(store, clock, "b")
        await first.poll()
        await second.poll()
        over = second.other.over
        await first.resign()
        assert not first.leads
        await second.poll()
        assert second.leads
        assert over.is_set()
        await first.poll()
        assert first.other.url == "http://b:8000"
        assert (first.num_changes, second.num_changes) == (1, 1)

    asyncio.run(scenario())


def test_leaders_renew_and_standbys_look_often():
    """A third of the lease, and a quarter of a second."""

    async def scenario():
        clock = ManualClock()
        store = SharedStore(clock)
        first, second = member(store, clock, "a"), member(store, clock, "b")
        await first.poll()
        await second.poll()
        assert (first.wait_s, second.wait_s) == (RENEW_S, POLL_S)
        assert 3 * RENEW_S <= LEASE_S

    asyncio.run(scenario())


def test_a_store_that_does_not_answer_is_given_up_before_the_lead_is_over():
    """The end of the lead is noticed when it comes, not when a question times out."""

    async def scenario():
        clock = ManualClock()
        store = SharedStore(clock)
        leadership = member(store, clock)
        await leadership.poll()

        async def never(candidate, ttl_s):
            await asyncio.Event().wait()

        store.lead = never
        clock.advance(LEASE_S - 0.1)
        async with asyncio.timeout(0.9):
            assert not await leadership.poll()

    asyncio.run(scenario())


def test_after_an_outage_of_the_store_the_former_leader_comes_first():
    """It alone knows that nothing was lost; the others stand back for a second, then they lead if it does not."""

    async def scenario():
        clock = ManualClock()
        store = SharedStore(clock)
        first, second = member(store, clock, "a"), member(store, clock, "b")
        await first.poll()
        await second.poll()
        store.down = True
        clock.advance(LEASE_S + 1.0)
        for leadership in (first, second):
            assert not await leadership.poll()
        store.down = False
        for _ in range(3):
            assert await second.poll()
            assert not second.leads
            clock.advance(0.25)
        assert store.leader.url == "http://a:8000"
        if_it_is_dead = clock.now() + STAND_BACK_S
        while not second.leads:
            clock.advance(0.25)
            await second.poll()
            assert clock.now() <= if_it_is_dead

    asyncio.run(scenario())
