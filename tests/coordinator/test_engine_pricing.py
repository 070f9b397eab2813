"""The price of a pool is worked out beside the event loop, and its answer is a command like any other."""

import asyncio
import threading

import pytest

from rampmeter.core.clock import ManualClock
from rampmeter.core.messages import Noted
from rampmeter_coordinator.codec import decode_command, encode_command
from rampmeter_coordinator.errors import Refused
from rampmeter_coordinator.model.commands import Priced
from rampmeter_coordinator.model.market import ASK_ANYHOW_S
from rampmeter_coordinator.model.pricing import Question
from rampmeter_coordinator.replay import replay
from support.engines import engine_over, registered
from support.jobs import Job
from support.stores import TestedStore
from support.waiting import some_turns, until


class Solver:
    """Stands before the real one: notes its threads, answers when it may."""

    def __init__(self, monkeypatch):
        self.threads, self.may_answer, self.error = [], threading.Event(), None
        answer = Question.answer

        def held_up(question):
            self.threads.append(threading.get_ident())
            assert self.may_answer.wait(30.0)
            if self.error is not None:
                raise self.error
            return answer(question)

        monkeypatch.setattr(Question, "answer", held_up)


def price_of(engine):
    return engine.pool_view("lustre").price_gpu_s_per_byte


def wake(engine, clock, by_s):
    """Time passes; the loop's timers do not know of it."""
    clock.advance(by_s)
    engine._runner("lustre")._wake.set()


def crowd(num=40):
    """Jobs that ask for more than the pool has."""
    return [Job() for _ in range(num)], {"mtbf_s": 60.0, "stall_s": 0.01, "interval_max_s": 1.0}


async def crowded(engine):
    jobs, figures = crowd()
    for job in jobs:
        await job.tell(engine, job.register(**figures))
    return jobs


def test_a_price_comes_back_as_a_command_and_with_it_new_plans():
    """It is in the log, a replay gives the same replies, and whoever calls next is told."""

    async def scenario():
        store, clock = TestedStore(), ManualClock()
        async with engine_over(store, clock=clock) as engine:
            jobs = await crowded(engine)
            wake(engine, clock, ASK_ANYHOW_S)
            await until(lambda: price_of(engine) > 0.0, what="the price")
            answer = await jobs[0].tell(engine, jobs[0].heartbeat())
            assert answer.plan.price_gpu_s_per_byte == price_of(engine)
            assert answer.plan.interval_s > 1.2
        segment = await store.segment("lustre")
        assert any(row.command.startswith(b'{"Priced":') for row in segment.rows)
        result = replay(segment)
        assert result.difference is None
        assert result.num_decisions == len(segment.rows)

    asyncio.run(scenario())


def test_nobody_waits_for_a_price(monkeypatch):
    """While it is worked out in another thread, requests are answered, and there is no second question."""
    solver = Solver(monkeypatch)

    async def scenario():
        clock = ManualClock()
        async with engine_over(TestedStore(), clock=clock) as engine:
            await crowded(engine)
            wake(engine, clock, ASK_ANYHOW_S)
            await until(lambda: solver.threads, what="the question")
            for _ in range(5):
                wake(engine, clock, ASK_ANYHOW_S)
                job = Job()
                assert isinstance(await job.tell(engine, job.register()), Noted)
            assert len(solver.threads) == 1
            assert price_of(engine) == 0.0
            solver.may_answer.set()
            await until(lambda: price_of(engine) > 0.0, what="the price")
            wake(engine, clock, ASK_ANYHOW_S)
            await until(lambda: len(solver.threads) == 2, what="the next question")
            assert threading.get_ident() not in solver.threads

    asyncio.run(scenario())


def test_a_solver_that_fails_is_asked_again(monkeypatch, caplog):
    """The pool goes on with the price that it has."""
    solver = Solver(monkeypatch)
    solver.may_answer.set()
    solver.error = ArithmeticError("a bug")

    async def scenario():
        clock = ManualClock()
        async with engine_over(TestedStore(), clock=clock) as engine:
            jobs = await crowded(engine)
            wake(engine, clock, ASK_ANYHOW_S)
            await until(lambda: "the price could not be worked out" in caplog.text, what="the failure")
            solver.error = None
            await jobs[0].tell(engine, jobs[0].register(interval_max_s=2.0))
            wake(engine, clock, ASK_ANYHOW_S)
            await until(lambda: price_of(engine) > 0.0, what="the price")

    asyncio.run(scenario())


def test_an_answer_for_a_ledger_that_is_gone_is_dropped(monkeypatch):
    """A pool that was loaded again has other jobs."""
    solver = Solver(monkeypatch)

    async def scenario():
        store, clock = TestedStore(), ManualClock()
        async with engine_over(store, clock=clock) as engine:
            jobs = await crowded(engine)
            wake(engine, clock, ASK_ANYHOW_S)
            await until(lambda: solver.threads, what="the question")
            store.forget("lustre")
            with pytest.raises(Refused):
                await jobs[0].tell(engine, jobs[0].heartbeat())
            await until(lambda: engine.pool_view("lustre").in_grace, what="the pool to be loaded again")
            solver.may_answer.set()
            await until(lambda: engine._runner("lustre")._pricing is None, what="the answer")
            assert not engine._runner("lustre")._inbox
            assert price_of(engine) == 0.0

    asyncio.run(scenario())


def test_a_coordinator_that_stops_waits_for_no_price(monkeypatch):
    """Nor is the answer that comes afterwards put anywhere."""
    solver = Solver(monkeypatch)

    async def scenario():
        clock = ManualClock()
        async with engine_over(TestedStore(), clock=clock) as engine:
            await crowded(engine)
            wake(engine, clock, ASK_ANYHOW_S)
            await until(lambda: solver.threads, what="the question")
            runner = engine._runner("lustre")
        assert not runner._inbox
        solver.may_answer.set()
        await some_turns()
        assert not runner._inbox

    asyncio.run(scenario())


def test_a_price_that_stays_is_no_command():
    """An idle coordinator writes nothing: what changes nothing is not even logged."""

    async def scenario():
        store, clock = TestedStore(), ManualClock()
        async with engine_over(store, clock=clock) as engine:
            await registered(engine, num=3)
            number = store.number()
            for _ in range(20):
                wake(engine, clock, ASK_ANYHOW_S)
                await some_turns()
                await until(lambda: engine._runner("lustre")._pricing is None, what="the answer")
            assert store.number() == number

    asyncio.run(scenario())


def test_the_command_is_read_as_it_was_written():
    """To the last bit, and whose claims are absurd by name."""
    for price in (0.0, 3.4294e-8, 1 / 3, 1e6):
        command = Priced(price_gpu_s_per_byte=price)
        assert decode_command(encode_command(command)) == command
    command = Priced(price_gpu_s_per_byte=0.0, absurd=("a" * 32, "b" * 32))
    assert decode_command(encode_command(command)) == command
