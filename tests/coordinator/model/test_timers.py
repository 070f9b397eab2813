"""The calendar of what ends by itself: everybody is looked at in time, in order, and once."""

import math
import random

from rampmeter_coordinator.model.timers import Timers
from support.records import job

INFINITY = math.inf


def test_nobody_has_no_time() -> None:
    """An empty calendar never wakes anybody."""
    timers = Timers()
    assert timers.next_s == INFINITY
    assert timers.take_due({}, 1e9) == []


def test_the_next_time_is_exact_within_its_second() -> None:
    """Not the second counts but the time in it, whatever was set before and behind it."""
    timers, jobs = Timers(), {name: job(name) for name in "abcd"}
    for name, at_s in (("a", 90.25), ("b", 30.75), ("c", 30.5), ("d", 14_490.0)):
        timers.set(jobs[name], at_s)
    assert timers.next_s == 30.5
    assert timers.take_due(jobs, 30.4) == []
    assert timers.take_due(jobs, 30.5) == [jobs["c"]]
    assert timers.next_s == 30.75
    assert timers.take_due(jobs, 100.0) == [jobs["b"], jobs["a"]]
    assert timers.next_s == 14_490.0


def test_an_earlier_time_replaces_the_later_one() -> None:
    """The job is looked at when it is first due, and not again at the time that is no longer its own."""
    timers, jobs = Timers(), {"a": job("a")}
    for at_s in (500.0, 60.5, 60.25, 61.0):
        timers.set(jobs["a"], at_s)
    assert timers.next_s == 60.25
    assert timers.take_due(jobs, 61.0) == [jobs["a"]]
    assert timers.take_due(jobs, 1000.0) == []
    assert timers.next_s == INFINITY


def test_a_forgotten_job_is_passed_over() -> None:
    """Its time comes and nothing happens."""
    timers, jobs = Timers(), {name: job(name) for name in "ab"}
    timers.set(jobs["a"], 10.0)
    timers.set(jobs["b"], 20.0)
    del jobs["a"], jobs["b"]
    assert timers.take_due(jobs, 15.0) == []
    assert timers.next_s == INFINITY


def test_whatever_is_set_is_due_in_order_and_once() -> None:
    """Times that come and go at random: the same jobs are due as a look at all records says."""
    rng = random.Random(4)
    timers, jobs = Timers(), {str(number): job(str(number)) for number in range(10)}
    now_s = 0.0
    for _ in range(20_000):
        if rng.random() < 0.7:
            one, at_s = (
                rng.choice(list(jobs.values())),
                now_s + rng.choice([0.1, 5.0, 20.0, 7200.0]) * rng.random(),
            )
            before_s = one.wake_s
            timers.set(one, at_s)
            assert one.wake_s == min(before_s, at_s)
            continue
        now_s += rng.choice([0.01, 0.3, 1.0, 3.0])
        due = [one for one in jobs.values() if one.wake_s <= now_s]
        due.sort(key=lambda one: (one.wake_s, one.uid))
        assert timers.take_due(jobs, now_s) == due
        assert all(one.wake_s == INFINITY for one in due)
        assert timers.next_s <= min(one.wake_s for one in jobs.values())
