"""Replicas in one process over one store: who has an engine, and what those say who have none."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from rampmeter.core.clock import ManualClock, SystemClock
from rampmeter.core.messages import Noted, RefusalReason
from rampmeter_coordinator.errors import Refused, StoreUnavailable
from rampmeter_coordinator.leadership import LEASE_S
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.replica import Replica
from support.jobs import Job
from support.shared_store import SharedStore
from support.waiting import until

POOL = PoolConfig(name="lustre", capacity_bytes_per_s=10**9)


class ApartClock(SystemClock):
    """The clock of another machine."""

    def now(self):
        return super().now() + 77_000.0


@asynccontextmanager
async def replica(store, name, *, clock=None, boot_id="boot", fresh=True):
    """A started replica, closed at the end."""
    made = Replica((POOL,), store, clock or SystemClock(), url=f"http://{name}", boot_id=boot_id, fresh=fresh)
    try:
        await made.start()
        yield made
    finally:
        store.down = False
        await made.close()


async def leads(*replicas):
    """Wait until one of them leads; that one."""
    await until(lambda: any(one.engine for one in replicas), what="a leader")
    return next(one for one in replicas if one.engine)


def test_one_leads_and_the_others_are_ready_without_an_engine():
    """A standby that knows a leader may get requests; it has no ledger."""

    async def scenario():
        store = SharedStore(SystemClock())
        async with replica(store, "a") as first, replica(store, "b") as second:
            assert first.engine is not None
            assert second.engine is None
            assert second.leader.url == "http://a"
            assert await first.not_ready_because() is None
            assert await second.not_ready_because() is None

    asyncio.run(scenario())


def test_who_stops_hands_over_without_grace():
    """The next one leads long before a lease would have run out, with the same jobs and leases."""

    async def scenario():
        store, job = SharedStore(SystemClock()), Job()
        async with replica(store, "b0") as first:
            async with replica(store, "b") as second:
                await job.tell(first.engine, job.register())
                await job.tell(first.engine, job.heartbeat())
                grant = await job.tell(first.engine, job.slot())
                await first.drain()
                assert (await first.not_ready_because()).reason is RefusalReason.DRAINING
                async with asyncio.timeout(LEASE_S / 2):
                    await leads(second)
                assert not second.engine.pool_view("lustre").in_grace
                renewed = await job.tell(second.engine, job.renew(held=grant.bytes_per_s))
                assert renewed.fence == grant.fence

    asyncio.run(scenario())


def test_a_leader_that_cannot_renew_stops_and_goes_on_when_the_store_is_back():
    """No engine answers after the lead is over; nothing was lost, so there is no grace afterwards."""

    async def scenario():
        store, job = SharedStore(SystemClock()), Job()
        async with replica(store, "a") as only:
            await job.tell(only.engine, job.register())
            engine = only.engine
            store.down = True
            await until(lambda: only.engine is None, what="the end of the lead")
            assert (await only.not_ready_because()).reason is RefusalReason.NO_LEADER
            await until(lambda: only._engine is None, what="the engine to be closed")
            with pytest.raises(Refused) as caught:
                engine.submit("lustre", job.heartbeat())
            assert caught.value.refusal.reason is RefusalReason.NO_LEADER
            store.down = False
            await leads(only)
            assert not only.engine.pool_view("lustre").in_grace
            assert isinstance(await job.tell(only.engine, job.heartbeat()), Noted)

    asyncio.run(scenario())


def test_held_requests_are_refused_when_the_lead_is_over():
    """Nobody waits for an answer of a coordinator that may not decide any more."""

    async def scenario():
        store = SharedStore(SystemClock())
        async with replica(store, "a") as only:
            jobs = [Job() for _ in range(2)]
            for job in jobs:
                await job.tell(only.engine, job.register())
                await job.tell(only.engine, job.heartbeat())
            await jobs[0].tell(only.engine, jobs[0].slot())
            held = only.engine.submit("lustre", jobs[1].slot())
            await until(lambda: only.engine.counters("lustre").num_held == 1, what="the request to be held")
            store.down = True
            await until(held.done, what="its refusal")
            assert held.exception().refusal.reason is RefusalReason.NO_LEADER

    asyncio.run(scenario())


def test_a_standby_takes_over_what_the_other_machine_had(caplog):
    """On a clock of another boot, watched for long enough: the leases go on, without grace."""

    async def scenario():
        store, job = SharedStore(SystemClock()), Job()
        async with replica(store, "a") as first:
            async with replica(store, "b", clock=ApartClock(), boot_id="other") as second:
                await job.tell(first.engine, job.register())
                await job.tell(first.engine, job.heartbeat())
                grant = await job.tell(first.engine, job.slot())
                await until(
                    lambda: second.leadership.samples.offset_of("boot") is not None, what="enough readings"
                )
                await first.drain()
                await leads(second)
                assert not second.engine.pool_view("lustre").in_grace
                renewed = await job.tell(second.engine, job.renew(held=grant.bytes_per_s))
                assert renewed.fence == grant.fence

    asyncio.run(scenario())


def test_a_standby_that_has_just_come_to_another_machine_needs_grace():
    """Too few readings of the clock that the records are in."""

    async def scenario():
        store = SharedStore(SystemClock())
        async with replica(store, "a") as first:
            async with replica(store, "b", clock=ApartClock(), boot_id="other") as second:
                await first.drain()
                await leads(second)
                assert second.engine.pool_view("lustre").in_grace

    asyncio.run(scenario())


def test_commits_that_a_standby_saw_and_the_store_lost_mean_grace():
    """A fail-over of the store together with the leader is noticed."""

    async def scenario():
        store, job = SharedStore(SystemClock()), Job()
        async with replica(store, "a") as first:
            async with replica(store, "b") as second:
                before = replace(store._pools["lustre"].head)
                await job.tell(first.engine, job.register())
                seen = second._known
                await until(
                    lambda: "lustre" in seen and seen["lustre"].position.number > before.number, what="a look"
                )
                await first.drain()
                store._pools["lustre"].head = before
                await leads(second)
                assert second.engine.pool_view("lustre").in_grace

    asyncio.run(scenario())


def test_a_leader_whose_pool_was_taken_steps_down_and_comes_back_under_a_newer_epoch():
    """Whatever took the pool, only one of them goes on writing."""

    async def scenario():
        store, job = SharedStore(SystemClock()), Job()
        async with replica(store, "a") as only:
            await job.tell(only.engine, job.register())
            kept = store._pools["lustre"]
            epoch = kept.head.epoch
            kept.head = replace(kept.head, epoch=epoch + 10, number=kept.head.number + 1, writer="x")
            with pytest.raises(Refused) as caught:
                await job.tell(only.engine, job.heartbeat())
            assert caught.value.refusal.reason is RefusalReason.REPLACED
            await until(
                lambda: only.engine and not only.engine.fenced and kept.head.epoch > epoch + 10,
                what="the return",
            )
            assert isinstance(await job.tell(only.engine, job.heartbeat()), Noted)

    asyncio.run(scenario())


def test_a_pool_whose_task_has_died_is_opened_again():
    """A fault that ends the task of a pool does not leave its jobs without an answer for ever."""

    async def scenario():
        store, job = SharedStore(SystemClock()), Job()
        async with replica(store, "a") as only:
            await job.tell(only.engine, job.register())
            engine = only.engine
            engine._runner("lustre")._task.cancel()
            await until(lambda: only.engine not in (None, engine), what="the pool to be opened again")
            assert isinstance(await job.tell(only.engine, job.heartbeat()), Noted)

    asyncio.run(scenario())


def test_a_store_that_does_not_say_who_leads_is_an_error_at_start():
    """The supervisor shall try again."""

    async def scenario():
        clock = ManualClock()
        store = SharedStore(clock)
        store.down = True
        made = Replica((POOL,), store, clock, url="", boot_id="boot", fresh=True)
        with pytest.raises(StoreUnavailable):
            await made.start()

    asyncio.run(scenario())
