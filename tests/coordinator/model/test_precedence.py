"""Restores and saves on one budget: who waits, who is paused, who is given up; and that no decision flaps."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rampmeter.core.messages import Kind
from rampmeter_coordinator.model import precedence
from rampmeter_coordinator.model.records import Job
from support.records import NOW, holding, waiting

BUDGET = 1000


def save(name: str, *, age_s: float = 90.0, **more: object) -> Job:
    """8 GPUs, M = 1 h: a pause costs 8 x 90 / 3600 = 0.2 GPU-seconds a second; 10 s are left to write."""
    return holding(name, snapshot_s=NOW - age_s, **more)


def read(name: str, *, num_bytes: int | None = 10_000, **more: object) -> Job:
    return holding(name, kind=Kind.READ, num_bytes=num_bytes, **more)


def order(*jobs: Job) -> str:
    """The names in the order of their claims."""
    return "".join(job.name for job in precedence.in_writing_order(jobs, BUDGET, NOW))


def test_urgent_saves_by_deadline_then_saves_in_start_order() -> None:
    """In whatever order they are named."""
    jobs = (
        save("b", deadline_at_s=NOW + 60.0, order_s=NOW - 50.0),
        save("a", deadline_at_s=NOW + 30.0),
        save("d", order_s=NOW - 10.0),
        save("c", order_s=NOW - 20.0),
    )
    for shuffled in itertools.permutations(jobs):
        assert order(*shuffled) == "abcd"


def test_a_restore_goes_before_a_save_that_is_cheap_to_pause() -> None:
    """8 GPUs idle for 10 s against 0.2 GPU-seconds a second for 10 s."""
    assert order(save("w"), read("r")) == "rw"


def test_a_restore_waits_for_a_save_that_is_dear_to_pause() -> None:
    """1000 s of reading while 8 x 2 h of work are at risk of 1 h, against 8 GPUs for the last second of the save."""
    old = save("w", age_s=7200.0, done_bytes=9000)
    assert order(old, read("r", num_bytes=1_000_000)) == "wr"
    assert order(old, read("r", num_bytes=400)) == "rw"


def test_a_pause_costs_all_gpus_of_a_job_that_waits_for_its_save() -> None:
    """Synchronous: 8 x (1 + 0.025) for 10 s of reading against 8 for 10 s of the save."""
    assert order(save("w", synchronous=True), read("r")) == "wr"
    assert order(save("w", synchronous=False), read("r")) == "rw"
    assert order(save("w", synchronous=True), read("r", num_bytes=9000)) == "rw"


def test_a_restore_never_goes_before_an_urgent_save() -> None:
    """However many GPUs wait."""
    assert order(read("r", num_gpus=10_000), save("u", deadline_at_s=NOW + 60.0)) == "ur"


def test_a_restore_stops_at_the_first_save_that_it_must_wait_for() -> None:
    """The newest save is paused, the one before it is not."""
    jobs = (save("a", age_s=36_000.0, order_s=NOW - 20.0, done_bytes=9900), save("b", order_s=NOW - 10.0))
    assert order(*jobs, read("r")) == "arb"


def test_restores_go_by_gpus_per_second_that_is_left() -> None:
    """What is read already counts no more; who can read only slowly takes longer."""
    jobs = (
        read("a", num_bytes=10_000),
        read("b", num_bytes=10_000, done_bytes=5000),
        read("c", num_bytes=10_000, done_bytes=5000, max_bytes_per_s=100),
    )
    assert order(*jobs) == "bac"


def test_an_unknown_size_has_no_end() -> None:
    """A restore does not wait for such a save, and pauses nothing itself."""
    assert order(save("w", num_bytes=None, age_s=36_000.0), read("r", num_bytes=1_000_000)) == "rw"
    assert order(save("w"), read("r", num_bytes=None)) == "wr"
    assert order(read("x", num_bytes=None, num_gpus=1000), read("r")) == "rx"
    assert order(save("w", num_bytes=None), read("r", num_bytes=None)) == "wr"


def test_a_waiting_restore_stands_where_it_would_with_a_lease() -> None:
    """Behind urgent saves and those that it must wait for; those behind it would be paused."""
    reader = waiting("r", kind=Kind.READ)
    holders = [
        save("u", deadline_at_s=NOW + 60.0),
        save("a", age_s=36_000.0, order_s=NOW - 20.0, done_bytes=9900),
        save("b", order_s=NOW - 10.0),
    ]
    assert ahead(reader, *holders) == "ua"
    assert ahead(waiting("r", kind=Kind.READ, num_gpus=10_000), holders[0], holders[2]) == "u"
    assert ahead(waiting("r", kind=Kind.READ, num_bytes=None), *holders) == "uab"
    assert ahead(reader, read("s", num_bytes=5000), holders[2]) == "s"
    assert ahead(reader, read("s", num_bytes=15_000), holders[2]) == ""


def ahead(reader: Job, *holders: Job) -> str:
    assert reader.waiter is not None
    return "".join(
        job.name for job in precedence.ahead_of_waiter(holders, reader, reader.waiter, BUDGET, NOW)
    )


# -- giving up -----------------------------------------------------------------------------------------------------


def gives_up(one: Job, *reads: Job, price: float = 0.0) -> bool:
    return precedence.pays_to_give_up(one, reads, price, BUDGET, NOW)


def test_a_synchronous_save_that_has_hardly_begun_makes_room() -> None:
    """Its GPUs lose a second of writing and one until it is armed again, else 10 s of waiting."""
    assert gives_up(save("w", synchronous=True, done_bytes=1000), read("r"))


def test_a_save_that_is_nearly_done_goes_on() -> None:
    """9 s of its writing would be lost, 1 s is left."""
    assert not gives_up(save("w", synchronous=True, done_bytes=9000), read("r"))


def test_a_save_is_not_given_up_for_a_short_read() -> None:
    """To pause it for a second costs less than what it has written."""
    assert not gives_up(save("w", synchronous=True, done_bytes=1000), read("r", num_bytes=1000))


def test_a_save_that_was_armed_for_the_end_of_a_read_is_not_given_up_for_it() -> None:
    """It has nothing to lose but its start: it was granted a second before its room, and would be again and again."""
    assert not gives_up(save("w", synchronous=True), read("r", num_bytes=900))
    slow = save("w", synchronous=True, lead_s=8.0)
    assert not gives_up(slow, read("r", num_bytes=8900))
    assert gives_up(slow, read("r", num_bytes=10_000))


def test_lost_bytes_cost_the_live_price() -> None:
    """At 0.07 GPU-seconds per byte the 1000 bytes are worth 70: with 2 s of its GPUs as much as 10 s of waiting."""
    one = save("w", synchronous=True, done_bytes=1000)
    assert gives_up(one, read("r"), price=0.05)
    assert not gives_up(one, read("r"), price=0.07)


def test_time_that_a_slow_writer_took_is_lost_in_full() -> None:
    """The same 1000 bytes at 100 bytes/s are 10 s of its GPUs, and pausing it for 10 s is cheaper."""
    one = save("w", synchronous=True, done_bytes=1000, max_bytes_per_s=100)
    assert not gives_up(one, read("r", num_bytes=10_000))
    assert gives_up(one, read("r", num_bytes=12_000))


def test_a_save_makes_no_room_for_a_read_that_is_only_armed() -> None:
    """Its first byte is not in hand: until then the save goes on."""
    one = save("w", synchronous=True, done_bytes=100)
    assert not gives_up(one, read("r", num_bytes=30_000, ready=False))
    assert gives_up(one, read("r", num_bytes=30_000, ready=True))


def test_a_save_that_can_go_on_beside_the_reads_does() -> None:
    """A tenth of its wish is enough: 100 of 1000 beside a read of 900, 10 of 100 beside one of 990."""
    one = save("w", synchronous=True, done_bytes=100)
    assert not gives_up(one, read("r", num_bytes=30_000, max_bytes_per_s=900))
    assert gives_up(one, read("r", num_bytes=30_000, max_bytes_per_s=901))
    slow = save("w", synchronous=True, max_bytes_per_s=100)
    assert not gives_up(slow, read("r", num_bytes=30_000, max_bytes_per_s=990))
    assert gives_up(slow, read("r", num_bytes=30_000, max_bytes_per_s=991))


@pytest.mark.parametrize(
    ("one", "reads"),
    [
        (save("w", synchronous=False), [read("r")]),
        (save("w", synchronous=True), []),
        (save("w", synchronous=True, deadline_at_s=NOW + 60.0), [read("r")]),
        (save("w", synchronous=True, num_bytes=None), [read("r", num_bytes=None)]),
    ],
)
def test_who_is_never_given_up(one: Job, reads: list[Job]) -> None:
    """A job that trains on while it writes, one that nobody waits for, an urgent save, and where no size is known."""
    assert not gives_up(one, *reads)


# -- time goes on --------------------------------------------------------------------------------------------------

STEP_S = 0.5


def turns(one: Job, other: Job) -> int:
    """How often the two change places until the first of them has ended, in a fluid that gives rates by their order."""
    first, num_turns, now_s = None, 0, NOW
    while all(job.lease and job.lease.done_bytes < (job.lease.num_bytes or 0) for job in (one, other)):
        ordered = precedence.in_writing_order([one, other], BUDGET, now_s)
        num_turns += first is not None and ordered[0] is not first
        first, rest = ordered[0], BUDGET
        for job in ordered:
            assert job.lease is not None
            rate = min(job.lease.max_bytes_per_s or BUDGET, rest)
            rest -= rate
            job.lease.done_bytes += int(rate * STEP_S)
        now_s += STEP_S
    return num_turns


SIZES = st.integers(1000, 60_000)
NUM_GPUS = st.integers(1, 64)


@settings(deadline=None)
@given(SIZES, SIZES, NUM_GPUS, NUM_GPUS, st.floats(1.0, 20_000.0), st.booleans())
def test_a_decision_once_taken_is_kept(
    to_write: int, to_read: int, writers: int, readers: int, age_s: float, synchronous: bool
) -> None:
    """Whoever is served gets less to do, which speaks for it; only a save that grows old may take its place back."""
    one = save("w", num_bytes=to_write, num_gpus=writers, age_s=age_s, synchronous=synchronous)
    assert turns(one, read("r", num_bytes=to_read, num_gpus=readers)) <= 1


@settings(deadline=None)
@given(SIZES, SIZES, NUM_GPUS, NUM_GPUS, st.sampled_from([300, 700, 1000]), st.sampled_from([300, 700, 1000]))
def test_two_that_share_do_not_take_turns(
    to_write: int, to_read: int, writers: int, readers: int, most_write: int, most_read: int
) -> None:
    """Where both go on beside each other either may be overtaken as it falls behind, but not again and again."""
    one = save("w", num_bytes=to_write, num_gpus=writers, age_s=3600.0, max_bytes_per_s=most_write)
    assert turns(one, read("r", num_bytes=to_read, num_gpus=readers, max_bytes_per_s=most_read)) <= 2


@settings(deadline=None)
@given(SIZES, SIZES, NUM_GPUS, NUM_GPUS)
def test_two_restores_do_not_take_turns(first: int, second: int, gpus: int, others: int) -> None:
    """The one that is served has ever less left."""
    assert turns(read("a", num_bytes=first, num_gpus=gpus), read("b", num_bytes=second, num_gpus=others)) == 0
