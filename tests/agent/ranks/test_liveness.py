"""Who is silent, and who is not because the listener itself was away."""

from rampmeter.ranks.liveness import SILENT_S, Silence, beat_s


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
