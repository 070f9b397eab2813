"""What ranks tell each other in a restore: sums of numbers, shares of a rate, times that never come out too long."""

import itertools
import random

import pytest

from rampmeter.reading.beats import RankReading, ReadWord, heard, numbers, weights
from rampmeter.throttle import FlowCounters

NOTHING = FlowCounters(done_bytes=0, throttled_s=0.0, blocked_s=0.0, busy_s=0.0)


def told(word: ReadWord, *counters: tuple[FlowCounters, float]) -> tuple[ReadWord, FlowCounters]:
    """What all ranks hear when rank 0 says `word` and each has its counters and its part."""
    said = [numbers(word if rank == 0 else None, *mine) for rank, mine in enumerate(counters)]
    return heard([sum(column) for column in zip(*said, strict=True)])


@pytest.mark.parametrize(
    "word",
    [
        ReadWord(bytes_per_s=10**12, left_s=29.5),
        ReadWord(bytes_per_s=0, left_s=None),
        ReadWord(bytes_per_s=None, left_s=None),
        ReadWord(bytes_per_s=7, left_s=0.0),
    ],
)
def test_the_word_of_rank_0_arrives_as_it_was_said(word: ReadWord) -> None:
    """Also without a limit, and without an end."""
    assert told(word, (NOTHING, 0.5), (NOTHING, 0.3), (NOTHING, 0.2))[0] == word


def test_a_time_that_is_over_is_no_time_without_end() -> None:
    """A rate whose end has passed says that nothing is left of it."""
    assert told(ReadWord(bytes_per_s=7, left_s=-3.0), (NOTHING, 1.0))[0].left_s == 0.0


def test_bytes_add_up_and_times_are_the_mean_by_bytes() -> None:
    """Two ranks of which one has three times the bytes of the other."""
    one = FlowCounters(done_bytes=300, throttled_s=4.0, blocked_s=2.0, busy_s=0.0)
    two = FlowCounters(done_bytes=100, throttled_s=0.0, blocked_s=2.0, busy_s=8.0)
    _, job = told(ReadWord(bytes_per_s=1, left_s=None), (one, 0.75), (two, 0.25))
    assert job == FlowCounters(done_bytes=400, throttled_s=3.0, blocked_s=2.0, busy_s=2.0)


def test_shares_of_the_rate_are_by_bytes_and_never_more_together() -> None:
    """For any bytes, any rate; all are finished together."""
    rng = random.Random(5)
    for _ in range(200):
        loads = [rng.randrange(1, 10**9) for _ in range(rng.randrange(1, 9))]
        rate = rng.randrange(10**6, 10**10)
        shares = []
        for rank in range(len(loads)):
            reading = RankReading(rank, weights(loads))
            share, _ = reading.follows(ReadWord(bytes_per_s=rate, left_s=None))
            shares.append(share or 0)
        assert sum(shares) <= rate
        for load_bytes, share in zip(loads, shares, strict=True):
            assert share == pytest.approx(
                rate * load_bytes / sum(loads), rel=0.01, abs=rate / 500 / len(loads)
            )


def test_a_rank_with_hardly_any_bytes_gets_through() -> None:
    """Its share by bytes would be half a byte per second, rounded to nothing."""
    shares = weights([10**14, 100, 0])
    reading = RankReading(1, shares)
    rate, _ = reading.follows(ReadWord(bytes_per_s=10 * 10**6, left_s=None))
    assert rate is not None
    assert rate > 1000
    assert RankReading(2, shares).follows(ReadWord(bytes_per_s=10 * 10**6, left_s=None)) == (0, None)


def test_a_rate_with_an_end_waits_for_the_second_beat() -> None:
    """Nobody knows how old the word of the first one is; one without an end is as good as ever."""
    reading = RankReading(0, [1, 1])
    reading.enters(50.0)
    assert reading.follows(ReadWord(bytes_per_s=8, left_s=10.0)) == (0, None)
    assert reading.follows(ReadWord(bytes_per_s=None, left_s=None)) == (None, None)
    reading.enters(53.0)
    assert reading.follows(ReadWord(bytes_per_s=8, left_s=10.0)) == (4, 60.0)


def test_no_rank_reads_longer_than_rank_0_may_however_late_it_is() -> None:
    """Beats of two ranks whose clocks are 1000 s apart, each entered at any time that the other's allow."""
    rng = random.Random(7)
    for _ in range(200):
        reading = RankReading(1, [1, 1])
        deadline_s, over_s = 100.0, 0.0  # by rank 0's clock
        for _ in range(10):
            enters_0, enters_1 = (over_s + rng.random() for _ in range(2))
            reading.enters(enters_1 + 1000.0)
            word = ReadWord(bytes_per_s=2, left_s=deadline_s - enters_0)
            over_s = max(enters_0, enters_1) + rng.random()  # nobody leaves before all have entered
            _, until_s = reading.follows(word)
            assert until_s is None or until_s - 1000.0 <= deadline_s


def test_a_rank_that_is_on_time_loses_little() -> None:
    """A beat of 0.25 s and what it takes, of a lease of half a minute."""
    reading = RankReading(1, [1, 1])
    for at_s in itertools.islice(itertools.count(0.0, 0.25), 20):
        reading.enters(at_s)
        _, until_s = reading.follows(ReadWord(bytes_per_s=2, left_s=30.0 - at_s))
    assert until_s is not None
    assert 29.7 <= until_s <= 30.0
