"""Shares of a rate, and ends of it on clocks that do not compare."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from rampmeter.ranks.rates import RankRate, RateReader, rank_rate
from rampmeter.ranks.words import Word


def test_shares_follow_the_bytes_and_never_sum_to_more() -> None:
    """A rank with b_i of b bytes has b_i / b of the rate, so that all are through together."""
    planned = [70, 20, 9, 1, 0]
    assert [rank_rate(1000, b, 100) for b in planned] == [700, 200, 90, 10, 0]
    assert sum(rank_rate(1001, b, 103) or 0 for b in (70, 32, 1)) <= 1001
    assert rank_rate(None, 5, 10) is None
    assert rank_rate(1000, 0, 0) == 0


def word(beat: int, *, left_s: float | None = 10.0, total_bytes: int | None = 100, number: int = 1) -> Word:
    return Word(beat=beat, number=number, version=3, bytes_per_s=50, left_s=left_s, total_bytes=total_bytes)


def test_ranks_take_turns_where_fewer_may_write() -> None:
    """Of four ranks two at once, by their numbers, each with half of the rate, whatever it has to write."""
    for rank, turn, rate in [(0, 2, 25), (1, 2, 25), (2, 2, 0), (3, 2, 0), (2, 3, 25), (3, 3, 0), (3, 4, 25)]:
        reader = RateReader(rank)
        reader.read(word(1), 1.0, number=1, planned_bytes=40)
        told = replace(word(3, left_s=None), max_streams=2, turn=turn)
        expected = RankRate(version=3, bytes_per_s=rate, until_s=None)
        assert reader.read(told, 2.0, number=1, planned_bytes=40) == expected


def test_a_rate_counts_from_before_it_was_said() -> None:
    """From the last look that found a word at least two older; before there is one, nothing is allowed."""
    reader = RateReader(0)
    reads = [(1, 100.0), (1, 100.25), (2, 100.5), (3, 100.75), (4, 101.0), (4, 101.25)]
    ends = []
    for beat, began_s in reads:
        rate = reader.read(word(beat), began_s, number=1, planned_bytes=40)
        ends.append(None if rate is None else rate.until_s)
    assert ends == [None, None, None, 110.25, 110.5, 110.5]


def test_no_rate_of_another_save_or_before_all_bytes_are_known() -> None:
    """The word must be of this save and must know what all write, and so must this rank."""
    reader = RateReader(0)
    reader.read(word(1), 1.0, number=1, planned_bytes=40)
    assert reader.read(word(3), 2.0, number=2, planned_bytes=40) is None
    assert reader.read(word(4), 3.0, number=1, planned_bytes=None) is None
    assert reader.read(word(5, total_bytes=None), 4.0, number=1, planned_bytes=40) is None
    expected = RankRate(version=3, bytes_per_s=20, until_s=None)
    assert reader.read(word(6, left_s=None), 5.0, number=1, planned_bytes=40) == expected


@settings(deadline=None, max_examples=300)
@given(
    offset_s=st.floats(-1e6, 1e6),
    held_up=st.lists(st.tuples(*[st.floats(0.0, 20.0)] * 4), min_size=1, max_size=30),
)
def test_nobody_writes_longer_than_rank_0_may(
    offset_s: float, held_up: list[tuple[float, float, float, float]]
) -> None:
    """However long words and looks are held up, and whatever the other machine's clock says.

    Each turn: rank 0 works a word out, it reaches the store later, somebody looks, and the answer arrives later still.
    """
    reader = RateReader(0)
    now_s, lease_ends_s = 1000.0, 1030.0
    in_store = word(0, left_s=30.0)
    for beat, (on_its_way_s, pause_s, asking_s, answering_s) in enumerate(held_up, start=1):
        said = word(beat, left_s=max(0.0, lease_ends_s - now_s))
        began_s = now_s + pause_s  # the look begins while the word is on its way, or after
        looked_s = began_s + asking_s
        in_store_s = now_s + on_its_way_s
        found = said if in_store_s <= looked_s else in_store
        rate = reader.read(found, began_s + offset_s, number=1, planned_bytes=100)
        if rate is not None and rate.until_s is not None:
            until_s = rate.until_s - offset_s
            assert (
                until_s <= lease_ends_s + 1e-6 or until_s <= looked_s + 1e-6
            )  # else it is over when it is read
        in_store = said
        now_s = max(in_store_s, looked_s) + answering_s
