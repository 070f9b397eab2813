"""The two integers that training and the agent's thread meet at, in every order in which their accesses can happen."""

import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rampmeter.ranks.counter import CallCounter


class Turns:
    """Lets two threads make their accesses in a given order, one at a time."""

    def __init__(self, order: str) -> None:
        self._order = list(order)
        self._changed = threading.Condition()
        self.is_on = False

    def take(self, access: Callable[[], Any]) -> Any:
        """Make the access when it is the calling thread's turn; with no turns left it may at once."""
        me = threading.current_thread().name
        with self._changed:
            if self.is_on:
                assert self._changed.wait_for(lambda: me not in self._order or self._order[0] == me, 10)
                if me in self._order:
                    self._order.pop(0)
            result = access()
            self._changed.notify_all()
            return result


class Stepped(CallCounter):
    """The real counter, whose two integers are read and written only in turn."""

    turns = Turns("")

    @property
    def num_calls(self) -> Any:  # type: ignore[override]
        return self.turns.take(lambda: self.values["num_calls"])

    @num_calls.setter
    def num_calls(self, value: int) -> None:
        self.turns.take(lambda: self.values.update(num_calls=value))

    @property
    def _at_call(self) -> Any:  # type: ignore[override]
        return self.turns.take(lambda: self.values["at_call"])

    @_at_call.setter
    def _at_call(self, value: int) -> None:
        self.turns.take(lambda: self.values.update(at_call=value))

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        super().__init__()


def orders() -> Iterator[str]:
    """Training makes three accesses in `called`, the agent two in `arm`."""
    for places in itertools.combinations(range(5), 2):
        yield "".join("A" if place in places else "T" for place in range(5))


@pytest.mark.parametrize("order", list(orders()))
def test_a_call_never_slips_through(order: str) -> None:
    """If the agent was told that the call is ahead, training notices it, in every order of their accesses."""
    turns = Turns(order)
    counter = Stepped()
    counter.turns = turns
    turns.is_on = True
    found: dict[str, Any] = {}
    threads = [
        threading.Thread(target=lambda: found.update(noticed=counter.called(7)), name="T"),
        threading.Thread(target=lambda: found.update(is_ahead=counter.arm(1)), name="A"),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    turns.is_on = False
    assert set(found) == {"noticed", "is_ahead"}
    assert found["noticed"] or not found["is_ahead"]


def test_only_the_armed_call_is_noticed() -> None:
    """Calls before and after it, and calls after a disarm, are like all others."""
    counter = CallCounter()
    assert counter.arm(3)
    assert [counter.called(step) for step in (10, 20, 30, 40)] == [False, False, True, False]
    assert counter.arm(6)
    counter.disarm()
    assert [counter.called(step) for step in (50, 60, 70)] == [False, False, False]
    assert not counter.arm(7)


def test_steps_of_late_calls_are_remembered() -> None:
    """What was said in a call is known for a while, and None is said for all that is not known."""
    counter = CallCounter()
    for call in range(1, 1001):
        counter.called(call * 10)
    assert [counter.step_at(call) for call in (1000, 900, 1001, 0, 1)] == [10000, 9000, None, None, None]
    for call in range(1, 1002):
        assert counter.step_at(call) in (call * 10, None)


def test_an_idle_call_does_next_to_nothing() -> None:
    """Counted in bytecode-level function calls: one, and no lock."""
    counter = CallCounter()
    calls: list[str] = []
    sys.setprofile(lambda frame, event, arg: calls.append(event))
    try:
        counter.called(1)
    finally:
        sys.setprofile(None)
    assert calls.count("call") == 1
    assert calls.count("c_call") <= 1  # sys.setprofile itself
