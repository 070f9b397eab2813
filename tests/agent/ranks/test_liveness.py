"""Who is silent, and who is not because the listener itself was away."""

from rampmeter.ranks.counter import CallCounter
from rampmeter.ranks.lead import Lead
from rampmeter.ranks.liveness import SILENT_S, Silence, beat_s, missed_s
from rampmeter.ranks.words import Post


def test_beats() -> None:
    """Four a second, and one above 256 ranks: rank 0 reads them all."""
    assert (beat_s(2), beat_s(256), beat_s(257)) == (0.25, 0.25, 1.0)


def test_a_rank_is_silent_after_ten_seconds() -> None:
    """Its beat does not grow any more; the other's does. Heard again, it is there again."""
    silence = Silence(0.0)
    now_s, beat = 0.0, 0
    while not silence.silent():
        now_s, beat = now_s + 0.25, beat + 1
        silence.listened({1: beat, 2: min(beat, 8)}, now_s)
    assert silence.silent() == {2: "has been silent for 10 s"}
    assert now_s == 8 * 0.25 + SILENT_S
    silence.listened({1: beat, 2: 9}, now_s + 0.25)
    assert silence.silent() == {}


def test_a_listener_that_was_away_blames_nobody() -> None:
    """Rank 0 was stopped for a minute: nobody is silent because of that."""
    silence = Silence(0.0)
    silence.listened({1: 1}, 0.25)
    silence.listened({1: 1}, 60.25)
    assert silence.silent() == {}


def test_the_longest_silence_is_named() -> None:
    """Above what is asked for; who is excepted is not meant; of two alike the lower one."""
    silence = Silence(0.0)
    for number in range(1, 13):
        beats = {0: number, 1: min(number, 4), 2: min(number, 2), 3: min(number, 2)}
        silence.listened(beats, number * 0.25)
    assert silence.longest(2.0) == "rank 2 has been silent for 2 s"
    assert silence.longest(2.0, but={2}) == "rank 3 has been silent for 2 s"
    assert silence.longest(2.01, but={2, 3}) == ""
    assert silence.longest(2.51) == ""
    assert Silence(0.0).longest(2.0) == ""


def test_no_single_gap_makes_a_rank_missing() -> None:
    """Whoever was stopped itself blames nobody at its first look, whatever the number of ranks."""
    for num_ranks in (2, 1000):
        silence = Silence(0.0)
        silence.listened({1: 1}, 0.25)
        silence.listened({1: 1}, 600.0)
        assert silence.longest(missed_s(num_ranks)) == ""


def test_who_has_left_is_not_missing() -> None:
    """A rank that has lost the others and says goodbye is not the one that is looked for."""
    lead = Lead(3, CallCounter(), 0.0)
    for number in range(1, 20):
        beats = {0: number, 1: min(number, 2), 2: min(number, 5)}
        posts = {rank: (beat, Post(left=rank == 1 and number > 2)) for rank, beat in beats.items()}
        lead.posted(posts, number * 0.25)
    assert lead.missing() == "rank 2 has been silent for 4 s"
