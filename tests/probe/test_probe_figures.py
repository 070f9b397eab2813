"""The arithmetic of a probe: early and late, the careful capacity, and the doubts about it."""

import pytest

from rampmeter.core.units import parse_rate
from rampmeter.probing.figures import (
    Round,
    Written,
    best,
    careful_capacity,
    doubts,
    halves,
    long_enough,
    unsure,
)


def measured(num_writers=1, *, rate=1e9, durable_s=10.0, early=None, late=None):
    """A round at a rate to durable."""
    return Round(
        num_writers=num_writers,
        num_bytes=int(rate * durable_s),
        write_s=durable_s / 2,
        durable_s=durable_s,
        sync_s=1.0,
        early_bytes_per_s=early,
        late_bytes_per_s=late,
        num_small_files=10,
        small_file_s=0.004,
        read_bytes=10**9,
        read_s=1.0,
    )


def writer(marks, begun_s=0.0):
    """A writer with these readings, the last one its end."""
    (end_s, num_bytes) = marks[-1]
    return Written(begun_s=begun_s, written_s=end_s, durable_s=end_s, num_bytes=num_bytes, marks=tuple(marks))


def test_a_steady_writer_has_equal_halves():
    """20 readings of 10 bytes a second."""
    early, late = halves([writer([(float(s), 10 * s) for s in range(1, 21)])])
    assert (early, late) == (10.0, 10.0)


def test_a_cache_shows_in_the_first_half():
    """100 bytes in the first 10 s, 20 in the next."""
    marks = [(float(s), 10 * s) for s in range(1, 11)] + [(10.0 + s, 100 + 2 * s) for s in range(1, 11)]
    assert halves([writer(marks)]) == (10.0, 2.0)


def test_halves_are_those_of_all_writers_together():
    """One ends after half of the time: the other half has one writer."""
    long = writer([(float(s), 10 * s) for s in range(1, 21)])
    short = writer([(float(s), 10 * s) for s in range(1, 11)])
    assert halves([long, short]) == (20.0, 10.0)


def test_too_few_readings_tell_nothing():
    """15 of them are no ground to judge by."""
    assert halves([writer([(float(s), s) for s in range(1, 16)])]) == (None, None)
    assert halves([writer([(0.0, 1)] * 16)]) == (None, None)


def test_what_is_sustained_is_the_lower_one():
    """Rate to durable or second half."""
    assert measured(rate=100.0).sustained_bytes_per_s == 100
    assert measured(rate=100.0, late=80.0).sustained_bytes_per_s == 80
    assert measured(rate=100.0, late=120.0).sustained_bytes_per_s == 100


@pytest.mark.parametrize(
    ("rate", "setting"),
    [
        (1.298e9, "1.2GB/s"),
        (1.0e9, "1GB/s"),
        (98.7e9, "98GB/s"),
        (987e6, "980MB/s"),
        (999.9e6, "990MB/s"),
        (2.35e12, "2.3TB/s"),
        (12.0, "12B/s"),
        (7.5, "7B/s"),
    ],
)
def test_a_careful_capacity_is_rounded_down_and_can_be_set(rate, setting):
    """Two digits, never above what was measured."""
    assert careful_capacity(rate) == setting
    assert parse_rate(setting) <= rate


def test_the_best_round_is_the_one_that_sustains_most():
    """Not the one that wrote fastest; of equals the one with fewer writers."""
    rounds = [measured(1, rate=5e8), measured(4, rate=9e8), measured(16, rate=2e9, late=9e8)]
    assert best(rounds).num_writers == 4


def test_a_short_probe_is_doubted():
    """Two seconds say nothing about hours."""
    short = [measured(durable_s=1.9)]
    assert "too short" in doubts(short)[0]
    assert f"for example {long_enough(short)}." in doubts(short)[0]
    assert unsure(short)
    assert doubts([measured(durable_s=2.1)]) == ()
    assert not unsure([measured(durable_s=2.1)])


def test_what_would_be_long_enough():
    """5 s for each round at the best rate, in whole GiB."""
    two = [measured(1, rate=1e9), measured(4, rate=1.3e9)]
    assert long_enough(two) == "13GiB"
    assert long_enough([measured(rate=1e6)]) == "1GiB"


def test_a_fading_rate_is_doubted():
    """Something in front of the storage took the first bytes."""
    faded = [measured(early=3e9, late=1.5e9)]
    assert "a cache" in doubts(faded)[0]
    assert unsure(faded)
    assert doubts([measured(early=1.4e9, late=1e9)]) == ()


def test_more_writers_are_advised_where_they_helped():
    """If the most of them were the best, by a fifth."""
    assert "--writers 4,8,16" in doubts([measured(1, rate=1e9), measured(4, rate=1.3e9)])[0]
    assert doubts([measured(1, rate=1e9), measured(4, rate=1.1e9)]) == ()
    assert doubts([measured(4, rate=1.3e9)]) == ()
