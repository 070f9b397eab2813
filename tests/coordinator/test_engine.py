"""The engine: never a reply before its commit, nobody forgotten, nothing unbounded. Real ledger, tested store."""

import asyncio

import pytest

from rampmeter.core.clock import SystemClock
from rampmeter.core.messages import Grant, Noted, RefusalReason
from rampmeter_coordinator.engine import Engine
from rampmeter_coordinator.errors import Fenced, Refused, StoreUnavailable
from support.engines import POOL, engine_over, refusal_of, registered, writer_and_waiter
from support.jobs import Job
from support.stores import TestedStore
from support.waiting import some_turns, until


def test_no_reply_before_its_commit():
    """A decided answer waits until the store has kept the batch."""

    async def scenario():
        store = TestedStore()
        async with engine_over(store) as engine:
            store.gate.clear()
            answer = engine.submit("lustre", Job().register())
            await until(lambda: store.waiting, what="the commit")
            await some_turns()
            assert not answer.done()
            store.gate.set()
            assert isinstance(await answer, Noted)

    asyncio.run(scenario())


def test_requests_of_one_turn_share_a_commit():
    """What arrives together, or while a commit runs, is kept together."""

    async def scenario():
        store = TestedStore()
        async with engine_over(store) as engine:
            before = len(store.batches)
            first = [engine.submit("lustre", Job().register()) for _ in range(100)]
            store.gate.clear()
            await until(lambda: store.waiting, what="the commit")
            later = [engine.submit("lustre", Job().register()) for _ in range(100)]
            await some_turns()
            store.gate.set()
            await asyncio.gather(*first, *later)
            assert [len(batch.log) for batch in store.batches[before:]] == [100, 100]

    asyncio.run(scenario())


@pytest.mark.parametrize("lands", [False, True], ids=["lost", "landed without an answer"])
def test_a_batch_that_is_not_kept_is_answered_503_and_kept_later(lands):
    """Everybody in the batch is told to come back; the same batch is kept before anything new is decided."""

    async def scenario():
        store = TestedStore()
        store.lands_before_error = lands
        async with engine_over(store) as engine:
            number = store.number()
            store.errors = [StoreUnavailable("gone")] * 2
            job = Job()
            request = job.register()
            with pytest.raises(Refused) as caught:
                await engine.submit("lustre", request)
            assert caught.value.refusal.status == 503
            assert 1 <= caught.value.retry_after_s <= 5
            with pytest.raises(Refused):  # at once: nothing new is decided while that batch is not kept
                engine.submit("lustre", Job().register())
            await until(
                lambda: not store.errors and store.batches[-1].head.number == number + 1, what="the retry"
            )
            answer = await engine.submit("lustre", request)
            assert answer.seq == 1
            assert job.uid in (await store.load("lustre")).records
            assert [batch.head.number for batch in store.batches] == list(range(1, len(store.batches) + 1))

    asyncio.run(scenario())


def test_what_waits_behind_a_failed_batch_is_refused_undecided():
    """Requests that arrived while the failing commit ran are told 503 and leave no trace."""

    async def scenario():
        store = TestedStore()
        async with engine_over(store) as engine:
            store.gate.clear()
            store.errors = [StoreUnavailable("gone")]
            first = engine.submit("lustre", Job().register())
            await until(lambda: store.waiting, what="the commit")
            behind = engine.submit("lustre", Job().register())
            store.gate.set()
            await asyncio.wait({first, behind})
            assert refusal_of(first).status == refusal_of(behind).status == 503
            await until(lambda: len(store.batches) == 2, what="the retry")
            assert engine.pool_view("lustre").num_jobs == 1

    asyncio.run(scenario())


def test_held_requests_survive_a_store_that_is_away_for_a_moment():
    """A held request is no reply: it goes on waiting and is answered when there is room."""

    async def scenario():
        store = TestedStore()
        async with engine_over(store) as engine:
            writer, _, _, held = await writer_and_waiter(engine)
            store.errors = [StoreUnavailable("gone")]
            with pytest.raises(Refused):
                await writer.tell(engine, writer.heartbeat())
            await until(lambda: not store.errors, what="the failure")
            assert not held.done()
            while True:
                try:
                    await writer.tell(engine, writer.release())
                    break
                except Refused:
                    await asyncio.sleep(0.05)
            assert isinstance(await held, Grant)

    asyncio.run(scenario())


def test_a_fenced_coordinator_stops_serving():
    """When another one has taken the pool, nobody gets an answer that was not kept, and readiness ends."""

    async def scenario():
        store = TestedStore()
        async with engine_over(store) as old:
            (job,) = await registered(old)
            assert await old.not_ready_because() is None
            async with engine_over(store) as new:
                with pytest.raises(Refused) as caught:
                    await job.tell(old, job.heartbeat())
                assert caught.value.refusal.status == 503
                assert "another coordinator" in (await old.not_ready_because()).detail
                assert await new.not_ready_because() is None
                assert isinstance(await job.tell(new, job.heartbeat()), Noted)
            with pytest.raises(Refused):
                old.submit("lustre", job.heartbeat())

    asyncio.run(scenario())


def test_of_two_that_start_together_the_second_fails_to_open():
    """A claim that meets another claim is an error at start, not a second leader."""

    async def scenario():
        store = TestedStore()
        store.gate.clear()
        opening = [
            asyncio.ensure_future(Engine.open((POOL,), store, SystemClock(), boot_id="b")) for _ in range(2)
        ]
        await until(lambda: store.waiting == 2, what="both claims")
        store.gate.set()
        results = await asyncio.gather(*opening, return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) in (
            ["Engine", "Fenced"],
            ["Engine", "LostCommits"],
        )
        await next(result for result in results if isinstance(result, Engine)).close()
        assert any(isinstance(result, Fenced) for result in results)

    asyncio.run(scenario())


def test_a_store_that_lost_commits_is_loaded_again_with_grace():
    """Memory does not go on as if nothing had happened: 503, then a fresh ledger in grace under a higher epoch."""

    async def scenario():
        store = TestedStore()
        async with engine_over(store) as engine:
            (job,) = await registered(engine)
            epoch = store.batches[-1].head.epoch
            assert not engine.pool_view("lustre").in_grace
            store.forget("lustre")
            with pytest.raises(Refused):
                await job.tell(engine, job.heartbeat())
            await until(lambda: engine.pool_view("lustre").in_grace, what="the pool to be loaded again")
            assert store.batches[-1].head.epoch > epoch
            with pytest.raises(Refused) as caught:
                await job.tell(engine, job.heartbeat())
            assert caught.value.refusal.reason is RefusalReason.UNKNOWN_JOB
            assert isinstance(await job.tell(engine, job.register()), Noted)

    asyncio.run(scenario())


def test_an_internal_error_hits_only_its_own_request(monkeypatch):
    """A command that makes the ledger fail is answered 500; the others of the batch get their answers."""

    async def scenario():
        async with engine_over(TestedStore()) as engine:
            (job,) = await registered(engine)
            ledger = engine._runner("lustre").opened.ledger
            real = ledger.apply

            def failing(command, now_s):
                if getattr(command, "step", None) == 666:
                    raise RuntimeError("a bug")
                return real(command, now_s)

            monkeypatch.setattr(ledger, "apply", failing)
            bad, good = (
                engine.submit("lustre", job.heartbeat(step=666)),
                engine.submit("lustre", Job().register()),
            )
            assert isinstance(await good, Noted)
            assert (refusal_of(bad).status, refusal_of(bad).reason) == (500, RefusalReason.INTERNAL)

    asyncio.run(scenario())


def test_an_unknown_pool_is_refused():
    """Requests and views of a pool that is not set are 404."""

    async def scenario():
        async with engine_over(TestedStore()) as engine:
            for ask in (lambda: engine.submit("x", Job().register()), lambda: engine.pool_view("x")):
                with pytest.raises(Refused) as caught:
                    ask()
                assert caught.value.refusal.reason is RefusalReason.UNKNOWN_POOL

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["nfs", "lustre"], "it has lustre, nfs"),
        ([f"area{i}" for i in range(40)] + ["lustre"], "lists those it has, among them lustre, "),
    ],
)
def test_an_unknown_pool_is_refused_with_the_nearest_names(names, expected):
    """At most five of them, the nearest first; what was asked for is not repeated."""
    engine = Engine(dict.fromkeys(names), TestedStore(), SystemClock())
    with pytest.raises(Refused) as caught:
        engine.pool_view("1ustre")
    detail = caught.value.refusal.detail
    assert expected in detail
    assert sum(name in detail.replace(",", "").split() for name in names) <= 5
    assert "1ustre" not in detail


def test_an_idle_pool_commits_nothing():
    """Ticks that change nothing are not kept, so an idle coordinator does not write."""

    async def scenario():
        store = TestedStore()
        async with engine_over(store) as engine:
            number = store.number()
            for _ in range(5):
                engine._runner("lustre")._wake.set()
                await some_turns()
            assert store.number() == number
            assert await engine.not_ready_because() is None
            assert store.number() == number + 1

    asyncio.run(scenario())
