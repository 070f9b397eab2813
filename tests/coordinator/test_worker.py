"""The store's thread: in order, whatever becomes of those who wait."""

import asyncio
import threading

import pytest

from rampmeter_coordinator.store.worker import Worker


def test_work_is_done_in_order_in_one_other_thread():
    """Results and errors come back to who waits for them."""

    async def scenario():
        worker, seen = Worker("worker"), []

        def note(number):
            seen.append((number, threading.current_thread().name))
            return number / (number - 2)

        results = await asyncio.gather(
            *(worker.run(lambda n=n: note(n)) for n in range(4)), return_exceptions=True
        )
        worker.end()
        with pytest.raises(RuntimeError, match="worker: the thread has ended"):
            worker.run(lambda: None)
        assert seen == [(number, "worker") for number in range(4)]
        assert results[:2] == [0.0, -1.0]
        assert isinstance(results[2], ZeroDivisionError)
        assert results[3] == 3.0

    asyncio.run(scenario())


def test_who_no_longer_waits_does_not_stop_the_work():
    """A cancelled piece is done all the same, and the next one too; nothing is reported as an error of the loop."""

    async def scenario():
        errors, done, go = [], [], threading.Event()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        worker = Worker("worker")
        first = worker.run(lambda: done.append(go.wait(10)))
        first.cancel()
        go.set()
        assert await worker.run(lambda: "next") == "next"
        with pytest.raises(asyncio.CancelledError):
            await first
        worker.end()
        assert (done, errors) == ([True], [])

    asyncio.run(scenario())


def test_a_loop_that_has_gone_does_not_break_the_thread():
    """What was handed in is finished although nobody can hear of it, and the thread ends when it is told to."""
    go, done = threading.Event(), []

    async def scenario():
        worker = Worker("worker")
        worker.run(lambda: go.wait(10))
        worker.run(lambda: done.append(1))
        return worker

    worker = asyncio.run(scenario())
    go.set()
    worker.end()
    assert done == [1]
