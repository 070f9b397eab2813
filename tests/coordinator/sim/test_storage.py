"""The simulated storage shares fairly, keeps its capacity and splits each writer's time as an agent would."""

import math

import pytest

from rampmeter_coordinator.sim.storage import Storage, Stream


def opened(storage, allowed=math.inf, **what):
    stream = Stream(num_bytes=1000.0, **what)
    storage.open(stream, 0.0)
    storage.allow(stream, allowed, 0.0)
    return stream


def after(storage, duration_s):
    storage.share()
    storage.advance(duration_s)


def split(stream):
    return [round(part, 6) for part in (stream.throttled_s, stream.blocked_s, stream.busy_s)]


def test_those_who_want_little_get_it_and_the_others_share_the_rest_equally():
    storage = Storage(100.0, 0.0)
    small, one, other = opened(storage, 10.0), opened(storage, 80.0), opened(storage)
    storage.share()
    assert [s.rate_bytes_per_s for s in (small, one, other)] == [10.0, 45.0, 45.0]


def test_a_lease_is_an_upper_bound_and_the_rest_of_the_time_is_throttled():
    storage = Storage(100.0, 0.0)
    stream = opened(storage, 25.0)
    after(storage, 4.0)
    assert stream.done_bytes == 100.0
    assert split(stream) == [3.0, 1.0, 0.0]  # alone it would write at 100: a quarter of its time


def test_a_storage_below_the_lease_blocks_its_writer_all_the_time():
    storage = Storage(20.0, 0.0)
    stream = opened(storage, 50.0)
    after(storage, 5.0)
    assert stream.done_bytes == 100.0
    assert split(stream) == [0.0, 5.0, 0.0]


def test_a_writer_bound_by_its_cpu_is_busy_whatever_it_is_allowed():
    storage = Storage(1000.0, 0.0)
    stream = opened(storage, 500.0, cpu_bytes_per_s=10.0)
    after(storage, 5.0)
    assert stream.done_bytes == 50.0
    assert split(stream) == [0.0, 0.0, 5.0]


def test_a_cpu_bound_writer_on_a_slower_storage_is_blocked_for_the_rest():
    storage = Storage(5.0, 0.0)
    stream = opened(storage, 500.0, cpu_bytes_per_s=10.0)
    after(storage, 4.0)
    assert split(stream) == [0.0, 2.0, 2.0]


def test_a_hung_writer_is_blocked_and_leaves_its_share_to_the_others():
    storage = Storage(100.0, 0.0)
    hung, other = opened(storage), opened(storage)
    storage.hang(hung, 0.0)
    after(storage, 3.0)
    assert (hung.done_bytes, other.done_bytes) == (0.0, 300.0)
    assert split(hung) == [0.0, 3.0, 0.0]


def test_a_writer_paused_by_its_lease_is_throttled():
    storage = Storage(100.0, 0.0)
    stream = opened(storage, 0.0)
    after(storage, 3.0)
    assert (stream.done_bytes, split(stream)) == (0.0, [3.0, 0.0, 0.0])


def test_time_is_never_split_into_more_or_less_than_there_was():
    storage = Storage(100.0, 0.0)
    streams = [
        opened(storage, rate, cpu_bytes_per_s=cpu, pipe_bytes_per_s=40.0)
        for rate in (0.0, 7.0, 30.0, math.inf)
        for cpu in (5.0, 33.0, math.inf)
    ]
    after(storage, 2.0)
    for stream in streams:
        assert sum(split(stream)) == pytest.approx(2.0)
        assert min(split(stream)) >= 0.0


def test_the_first_end_is_known_and_what_was_written_adds_up():
    storage = Storage(100.0, 0.0)
    first, second = opened(storage), opened(storage, 10.0)
    storage.share()
    assert storage.next_end_s() == pytest.approx(1000.0 / 90.0)
    storage.advance(storage.next_end_s())
    assert first.is_done
    assert not second.is_done
    assert storage.written_bytes == pytest.approx(first.done_bytes + second.done_bytes)


def test_a_change_of_capacity_counts_from_its_instant():
    storage = Storage(100.0, 0.0)
    stream = opened(storage)
    after(storage, 2.0)
    storage.set_capacity(10.0, 2.0)
    assert storage.changed
    after(storage, 4.0)
    assert stream.done_bytes == 220.0
