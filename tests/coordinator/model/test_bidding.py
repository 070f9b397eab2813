"""The order of those who wait: urgent, started, starving, highest bid, unknown size; restores among them."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rampmeter.core import interval
from rampmeter.core.messages import Kind
from rampmeter_coordinator.model import bidding
from rampmeter_coordinator.model.records import Job
from support.records import NOW, waiting

BUDGET = 1000


def order(*jobs: Job, now_s: float = NOW) -> str:
    """The names of the jobs in the order in which they are served."""
    return "".join(job.name for _, job in bidding.in_order(jobs, BUDGET, now_s))


def bid(job: Job, now_s: float = NOW) -> float:
    assert job.waiter is not None
    return bidding.bid_of(job, job.waiter, now_s)


def starves(job: Job) -> bool:
    assert job.waiter is not None
    return bidding.is_starving(job, job.waiter, NOW)


def test_urgent_started_starving_highest_bid_unknown_size() -> None:
    """In this order, in whatever order they came."""
    jobs = (
        waiting("u", deadline_at_s=NOW + 60.0),
        waiting("s", started=True),
        waiting("h", age_s=201.0),
        waiting("b", age_s=150.0),
        waiting("l", age_s=90.0),
        waiting("x", num_bytes=None),
    )
    for shuffled in itertools.permutations(jobs):
        assert order(*shuffled) == "ushblx"


def test_urgent_saves_go_by_deadline() -> None:
    """Not by age, not by bid; an urgent one that goes on is still urgent."""
    jobs = (
        waiting("a", deadline_at_s=NOW + 90.0, age_s=500.0),
        waiting("b", deadline_at_s=NOW + 30.0),
        waiting("c", deadline_at_s=NOW + 60.0, started=True),
    )
    assert order(*jobs) == "bca"


def test_saves_that_go_on_keep_the_order_of_their_first_grant() -> None:
    """However late they asked again."""
    jobs = (
        waiting("a", started=True, save_since_s=NOW - 10.0, since_s=NOW - 9.0),
        waiting("b", started=True, save_since_s=NOW - 20.0, since_s=NOW - 1.0),
        waiting("c", started=True, since_s=NOW - 15.0),
    )
    assert order(*jobs) == "bca"


def test_starving_is_counted_in_planned_intervals() -> None:
    """2 T of the plan; never multiples of the own period, which is 85 s here: cheap jobs are late by design."""
    assert starves(waiting("a", age_s=200.1, interval_s=100.0))
    assert not starves(waiting("a", age_s=199.9, interval_s=100.0))
    assert not starves(waiting("a", age_s=1900.0, interval_s=1000.0))


def test_the_one_who_starves_most_goes_first() -> None:
    """By age over T: 2.5 x 100 s before 2.1 x 400 s, which is older and bids more; a restore never starves."""
    jobs = (waiting("a", age_s=840.0, interval_s=400.0), waiting("b", age_s=250.0, interval_s=100.0))
    assert bid(jobs[0]) > bid(jobs[1])
    assert order(*jobs) == "ba"
    assert not starves(waiting("r", kind=Kind.READ, age_s=1e6))


def test_a_bid_is_what_a_byte_written_now_is_worth() -> None:
    """n (x^2 / 2M - C) / b with C = 1 s: 8 x (120^2 / 7200 - 1) / 10,000 = 8e-4 GPU-seconds per byte."""
    assert bid(waiting("a", age_s=120.0)) == pytest.approx(8e-4)


def test_the_cost_of_a_save_contains_the_steps_slowed_down_by_its_write() -> None:
    """C = stall + eps W: 1 s + 0.02 x 25 s; a synchronous job's is all of its write time."""
    learned = {"stall_s": 1.0, "write_s": 25.0}
    assert bid(waiting("a", age_s=120.0, **learned)) == pytest.approx(8.0 * (2.0 - 1.5) / 10_000)
    slow = waiting("a", age_s=600.0, **learned, synchronous=True)
    assert bid(slow) == pytest.approx(8.0 * (50.0 - 25.0) / 10_000)


def test_a_bid_is_never_below_zero() -> None:
    """Nor for a save of unknown size or of no bytes."""
    assert bid(waiting("a", age_s=1.0)) == 0.0
    assert bid(waiting("a", num_bytes=None)) == 0.0
    assert bid(waiting("a", num_bytes=0)) == 0.0


def test_more_gpus_and_fewer_bytes_bid_more() -> None:
    """As does a job that fails more often."""
    plain = waiting("p")
    assert order(plain, waiting("a", num_gpus=16)) == "ap"
    assert order(plain, waiting("a", num_bytes=5000)) == "ap"
    assert order(plain, waiting("a", mtbf_s=1800.0)) == "ap"


def test_bids_grow_with_age_and_may_change_places() -> None:
    """The large job is behind at first and ahead two minutes later, by now_s alone."""
    small = waiting("s", age_s=120.0, num_bytes=1000, num_gpus=1, interval_s=1e4)
    large = waiting("l", age_s=90.0, num_bytes=10_000, num_gpus=64, mtbf_s=8000.0, interval_s=1e4)
    assert order(small, large) == "sl"
    assert order(small, large, now_s=NOW + 120.0) == "ls"


def test_equal_bids_are_served_as_they_came() -> None:
    """The first in the queue, then by name, so that the order is the same each time."""
    first, second = waiting("b", since_s=NOW - 2.0), waiting("a", since_s=NOW - 1.0)
    assert order(second, first) == "ba"
    assert order(waiting("b"), waiting("a")) == "ab"


def test_a_starving_save_of_unknown_size_waits_no_more_than_others() -> None:
    """Last only until it is older than 2 T."""
    assert order(waiting("a"), waiting("x", num_bytes=None, age_s=250.0)) == "xa"


# -- restores ------------------------------------------------------------------------------------------------------


def read(name: str, num_bytes: int | None, num_gpus: int, **more: object) -> Job:
    return waiting(name, kind=Kind.READ, num_bytes=num_bytes, num_gpus=num_gpus, **more)


def test_restores_go_by_gpus_per_second_of_reading() -> None:
    """8 GPUs in 1 s before 64 in 10 s; the job's own maximal rate counts; unknown size last."""
    jobs = (
        read("a", 10_000, 64),
        read("b", 1000, 8),
        read("c", 1000, 8, max_bytes_per_s=500),
        read("x", None, 1000),
    )
    assert order(*jobs) == "bacx"


@pytest.mark.parametrize(("age_s", "expected"), [(84.9, "rw"), (174.8, "rw"), (174.9 + 1.0, "wr")])
def test_a_save_goes_before_a_restore_only_where_it_is_overdue_enough(age_s: float, expected: str) -> None:
    """2 q_k (x_k - D_k) / (M_k C_k) > q_b / rem_b: 2 x 8 (x - 84.9) / (3600 x 10) > 0.4 / 10 from 174.9 s on."""
    assert order(waiting("w", age_s=age_s, interval_s=1e4), read("r", 100_000, 4)) == expected


def test_urgent_and_started_saves_go_before_restores() -> None:
    """Whoever is behind them in order goes by the rule of overdue saves."""
    jobs = (
        read("r", 1000, 1000),
        waiting("u", deadline_at_s=NOW + 60.0),
        waiting("s", started=True),
        waiting("w"),
        waiting("x", num_bytes=None),
    )
    assert order(*jobs) == "usrwx"


def test_the_order_of_saves_and_that_of_restores_stay_as_they_are() -> None:
    """Where the two are put together neither is changed."""
    saves = [waiting(name, age_s=age_s, interval_s=1e4) for name, age_s in (("a", 900.0), ("b", 300.0))]
    reads = [read("p", 1000, 8), read("q", 100_000, 8)]
    merged = order(*saves, *reads)
    assert sorted(merged) == sorted("abpq")
    assert merged.index("a") < merged.index("b")
    assert merged.index("p") < merged.index("q")


ANY_WRITER = st.builds(
    lambda age_s, num_bytes, num_gpus, started, deadline_s: {
        "age_s": age_s,
        "num_bytes": num_bytes,
        "num_gpus": num_gpus,
        "started": started,
        "deadline_at_s": None if deadline_s is None else NOW + deadline_s,
    },
    st.floats(0.0, 1000.0),
    st.none() | st.integers(0, 10**6),
    st.integers(1, 2048),
    st.booleans(),
    st.none() | st.floats(1.0, 100.0),
)


@given(
    st.lists(ANY_WRITER, max_size=6),
    st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 2048)), max_size=4),
)
def test_everybody_has_one_place(writers: list[dict[str, object]], reads: list[tuple[int, int]]) -> None:
    """Nobody is lost or doubled; no save with a lower claim of its kind stands before a higher one."""
    saves = [waiting(f"w{i}", **figures) for i, figures in enumerate(writers)]
    restores = [read(f"r{i}", num_bytes, gpus) for i, (num_bytes, gpus) in enumerate(reads)]
    ordered = [job for _, job in bidding.in_order([*saves, *restores], BUDGET, NOW)]
    assert sorted(job.name for job in ordered) == sorted(job.name for job in [*saves, *restores])
    claims = [claim(job) for job in ordered if job.waiter and job.waiter.kind is Kind.WRITE]
    assert claims == sorted(claims)


def claim(job: Job) -> tuple[int, float]:
    """The rule of the order, in other words."""
    waiter = job.waiter
    assert waiter is not None
    age_s = NOW - waiter.unsaved_since_s
    if waiter.deadline_at_s is not None:
        return 0, waiter.deadline_at_s
    if waiter.started:
        return 1, 0.0
    if age_s > 2.0 * job.plan.interval_s:
        return 2, -age_s
    if waiter.num_bytes is None:
        return 4, 0.0
    bytes_ = waiter.num_bytes or math.inf
    return 3, -max(0.0, job.num_gpus * (interval.cost_of_period(age_s, 3600.0) - 1.0)) / bytes_
