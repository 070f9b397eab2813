"""The engine and those who wait: answered when their time has come, dropped when they go, refused beyond a bound."""

import asyncio

import pytest

from rampmeter.core.messages import Grant, Noted, RefusalReason
from rampmeter_coordinator.errors import Refused
from support.engines import POOL, engine_over, refusal_of, registered, writer_and_waiter
from support.jobs import Job
from support.stores import TestedStore
from support.waiting import some_turns, until


def test_too_many_waiting_commands_are_refused():
    """The inbox is bounded: who finds it full is told to come back, and the others are served."""

    async def scenario():
        store = TestedStore()
        async with engine_over(store, max_inbox=3) as engine:
            store.gate.clear()
            first = engine.submit("lustre", Job().register())
            await until(lambda: store.waiting, what="the commit")
            others = [engine.submit("lustre", Job().register()) for _ in range(3)]
            with pytest.raises(Refused) as caught:
                engine.submit("lustre", Job().register())
            assert (caught.value.refusal.reason, caught.value.refusal.status) == (
                RefusalReason.OVERLOADED,
                503,
            )
            assert caught.value.retry_after_s
            assert engine.counters("lustre").num_overloaded == 1
            store.gate.set()
            await asyncio.gather(first, *others)

    asyncio.run(scenario())


def test_a_held_request_is_answered_by_the_release_of_another_job():
    """Room that becomes free goes to the waiter at once, with the grant in the answer that it waits for."""

    async def scenario():
        async with engine_over(TestedStore()) as engine:
            writer, _, _, held = await writer_and_waiter(engine)
            await writer.tell(engine, writer.release())
            grant = await held
            assert isinstance(grant, Grant)
            assert grant.bytes_per_s == POOL.budget_bytes_per_s

    asyncio.run(scenario())


def test_a_client_that_has_gone_waits_no_more():
    """Cancelling the last future of a held request takes its job out of the queue."""

    async def scenario():
        store = TestedStore()
        async with engine_over(store) as engine:
            writer, _, _, held = await writer_and_waiter(engine)
            held.cancel()
            await until(
                lambda: store.log("lustre")[-1].command.startswith(b'{"Disconnected"'), what="the ledger"
            )
            assert engine.counters("lustre").num_held == 0
            await writer.tell(engine, writer.release())
            assert engine.pool_view("lustre").num_leases == 0

    asyncio.run(scenario())


def test_several_connections_may_wait_for_one_request():
    """The same request sent again waits beside the first one; one of them may go; the other gets the answer."""

    async def scenario():
        async with engine_over(TestedStore()) as engine:
            writer, _, request, held = await writer_and_waiter(engine)
            again, third = engine.submit("lustre", request), engine.submit("lustre", request)
            await some_turns()
            held.cancel()
            await some_turns()
            assert engine.counters("lustre").num_held == 1
            await writer.tell(engine, writer.release())
            assert await again == await third

    asyncio.run(scenario())


def test_an_overtaken_request_gets_its_refusal():
    """A newer request of the job ends the held one with 409, and the newer one is answered."""

    async def scenario():
        async with engine_over(TestedStore()) as engine:
            _, waiter, _, held = await writer_and_waiter(engine)
            await waiter.tell(engine, waiter.heartbeat())
            await asyncio.wait({held})
            assert (refusal_of(held).status, refusal_of(held).reason) == (409, RefusalReason.SUPERSEDED)

    asyncio.run(scenario())


def test_time_alone_answers_a_held_renewal():
    """No other request need come: the engine wakes the ledger when a hold is over."""

    async def scenario():
        async with engine_over(TestedStore()) as engine:
            (job,) = await registered(engine)
            await job.tell(engine, job.slot())
            await job.tell(engine, job.renew())
            answer = await asyncio.wait_for(job.tell(engine, job.renew()), timeout=20)
            assert isinstance(answer, Grant)
            assert 4.5 < answer.held_s < 7

    asyncio.run(scenario())


def test_draining_answers_everybody_and_takes_nobody():
    """Held requests are told 503 draining with different times to come back; what was decided is kept."""

    async def scenario():
        store = TestedStore()
        async with engine_over(store) as engine:
            _, _, _, held = await writer_and_waiter(engine)
            more = [engine.submit("lustre", job.slot()) for job in await registered(engine, num=5)]
            last = engine.submit("lustre", Job().register())
            await engine.drain()
            assert isinstance(await last, Noted)
            assert refusal_of(held).reason is RefusalReason.DRAINING
            assert len({future.exception().retry_after_s for future in more}) > 1
            with pytest.raises(Refused) as caught:
                engine.submit("lustre", Job().register())
            assert caught.value.refusal.reason is RefusalReason.DRAINING
            assert (await engine.not_ready_because()).reason is RefusalReason.DRAINING

    asyncio.run(scenario())
