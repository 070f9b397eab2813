"""The thread that flushes: what it hands over, and when the end of a process waits for it no longer."""

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

import pytest

from rampmeter.core.clock import Clock
from rampmeter.flushthread import in_thread_of_its_own, wait_while_it_moves
from rampmeter.throttle import FlowCounters

BEGUN = FlowCounters(done_bytes=1, throttled_s=0.0, blocked_s=1.0, busy_s=1.0)
NOT_BEGUN = FlowCounters(done_bytes=0, throttled_s=0.0, blocked_s=0.0, busy_s=0.0)


def num_looks(
    readings: list[FlowCounters],
    *,
    hung_s: float,
    is_in_storage: Callable[[], bool] = lambda: False,
    limit_s: float = 0.75,
    clock: Clock | None = None,
) -> int:
    """How often a flush that is seen so, the last reading for ever, is looked at in this time; it does not end."""
    looks: list[int] = []

    def counters() -> FlowCounters:
        looks.append(1)
        return readings[min(len(looks), len(readings)) - 1]

    assert not wait_while_it_moves(
        Future(), counters, limit_s, is_in_storage=is_in_storage, hung_s=hung_s, clock=clock
    )
    return len(looks)


def test_what_is_returned_or_raised_comes_back_and_the_thread_keeps_no_process() -> None:
    """Also what is no Exception, as DCP's own error."""
    thread = in_thread_of_its_own(threading.current_thread).result(10.0)
    assert thread.daemon

    def fail() -> None:
        raise SystemExit(3)

    assert isinstance(in_thread_of_its_own(fail).exception(10.0), SystemExit)


def test_one_that_has_ended_is_waited_for() -> None:
    """At once."""
    done: Future[None] = Future()
    done.set_result(None)
    assert wait_while_it_moves(done, lambda: BEGUN, 60.0)


def test_one_that_stands_still_in_storage_is_not() -> None:
    """Only time in the file passes: the first look tells."""
    assert num_looks([replace(BEGUN, blocked_s=float(number)) for number in range(100)], hung_s=0.25) == 2


@pytest.mark.parametrize(
    "readings",
    [
        [replace(BEGUN, done_bytes=number) for number in range(100)],
        [replace(BEGUN, throttled_s=float(number)) for number in range(100)],
        [replace(BEGUN, busy_s=float(number)) for number in range(100)],
        [NOT_BEGUN],
    ],
    ids=["bytes", "waits for its lease", "computes", "has not begun"],
)
def test_one_that_moves_is_waited_for_up_to_the_limit(readings: list[FlowCounters]) -> None:
    """Whatever it does; only the limit ends it: the third look and not the first."""
    assert num_looks(readings, hung_s=0.25) == 4


@pytest.mark.parametrize(
    "reading", [NOT_BEGUN, replace(BEGUN, busy_s=5.0)], ids=["before the first byte", "after the last"]
)
def test_one_that_stands_still_in_a_call_without_bytes_is_not(reading: FlowCounters) -> None:
    """Whatever time passes meanwhile; one that is in such a call only now and then is waited for."""
    readings = [replace(reading, busy_s=reading.busy_s and float(number)) for number in range(100)]
    assert num_looks(readings, hung_s=0.25, is_in_storage=lambda: True) == 2
    turns = itertools.cycle([True, False])
    assert num_looks(readings, hung_s=0.5, is_in_storage=lambda: next(turns)) == 4


class Ticks:
    """A clock that is read once for each look: so many seconds pass from one to the next."""

    def __init__(self, tick_s: float) -> None:
        self._readings = itertools.count()
        self._tick_s = tick_s

    def now(self) -> float:
        return next(self._readings) * self._tick_s

    def sleep(self, duration_s: float) -> None:
        raise AssertionError("nobody sleeps by it")


@pytest.mark.parametrize(("look_s", "num_seen"), [(0.25, 5), (0.45, 4), (1000.0, 3)])
def test_the_time_that_looks_take_counts_but_not_all_of_one_in_which_the_process_was_stopped(
    look_s: float, num_seen: int
) -> None:
    """On a busy machine a second of standing still is no more looks than fit into it, and never less than two."""
    assert num_looks([BEGUN], hung_s=1.0, limit_s=5.0, clock=Ticks(look_s)) == num_seen


@pytest.mark.parametrize("field", ["done_bytes", "throttled_s"])
def test_one_that_writes_or_sleeps_beside_such_a_call_is_waited_for(field: str) -> None:
    """Another of its threads is in the call."""
    readings = [replace(BEGUN, **{field: number}) for number in range(100)]
    assert num_looks(readings, hung_s=0.25, is_in_storage=lambda: True) == 4
