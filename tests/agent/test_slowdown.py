"""eps from stretches of steps: what is lost beside flushes, and what is not blamed on them."""

import random

import pytest

from rampmeter.slowdown import SlowDown, Stretch

STEP_S = 0.5


def stretch(num_steps, step_s=STEP_S, *, more_s=0.0):
    """So many steps of so many seconds, and something else that training did meanwhile."""
    return Stretch(num_steps=num_steps, duration_s=num_steps * step_s + more_s)


def between(*stretches):
    """An attempt that has seen these between flushes."""
    slow_down = SlowDown()
    for one in stretches:
        slow_down.note_between(one)
    return slow_down


def flushed(slow_down, *pieces, flush_s=None, at_work_s=None):
    """A flush of these pieces, at work all the time unless told otherwise."""
    flush_s = sum(piece.duration_s for piece in pieces) if flush_s is None else flush_s
    return slow_down.note_flush(
        pieces, flush_s=flush_s, at_work_s=flush_s if at_work_s is None else at_work_s
    )


STEADY = [stretch(10)] * 5


def test_time_lost_is_told_as_a_share_of_the_time_at_work():
    """Steps of 0.5 s take 0.55 s beside the flush: a tenth of its 22 s more than their 20 s alone."""
    pieces = [stretch(10, 0.55)] * 4
    assert flushed(between(*STEADY), *pieces) == pytest.approx(2.0 / 22.0)


def test_sleep_in_the_bucket_is_no_time_at_work():
    """The same 2 s lost by a flush that was at work for 11 s of its 22 weigh twice."""
    pieces = [stretch(10, 0.55)] * 4
    assert flushed(between(*STEADY), *pieces, at_work_s=11.0) == pytest.approx(2.0 / 11.0)


def test_the_end_of_a_flush_within_a_step_counts_like_the_rest_of_it():
    """22 s are timed at ends of steps, the flush took 24.2 s: a tenth more is lost."""
    pieces = [stretch(10, 0.55)] * 4
    assert flushed(between(*STEADY), *pieces, flush_s=24.2, at_work_s=11.0) == pytest.approx(2.2 / 11.0)


def test_faster_steps_beside_a_flush_are_no_gain():
    """Below 0 is 0."""
    assert flushed(between(*STEADY), *[stretch(10, 0.45)] * 4) == 0.0


def test_never_more_than_all_is_lost():
    """At work for 1 s, 2 s lost: 1."""
    slow_down = between(*STEADY)
    assert flushed(slow_down, *[stretch(10, 0.55)] * 4, at_work_s=1.0) == 1.0


@pytest.mark.parametrize("num_between", [0, 2])
def test_too_little_between_flushes_gives_no_figure(num_between):
    """A step alone is not known yet."""
    assert flushed(between(*STEADY[:num_between]), *[stretch(10)] * 4) is None


def test_stretches_of_a_few_steps_are_no_measure():
    """Four steps between two flushes say nothing of a fifth."""
    assert flushed(between(*[stretch(4)] * 9), *[stretch(10)] * 4) is None


@pytest.mark.parametrize("pieces", [[], [stretch(10)] * 2, [stretch(1)] * 4])
def test_too_few_steps_beside_a_flush_give_no_figure(pieces):
    """Fewer than 3 pieces or 5 steps."""
    assert flushed(between(*STEADY), *pieces, flush_s=20.0) is None


def test_flushes_with_a_step_or_two_are_taken_together():
    """Two steps of 11 s instead of 10 end beside each flush of 25 s: after three flushes there is a figure."""
    slow_down = between(*[stretch(10, 10.0)] * 5)
    figures = [flushed(slow_down, *[stretch(1, 11.0)] * 2, flush_s=25.0) for _ in range(6)]
    assert figures == [None, None, pytest.approx(1.0 / 11.0), None, None, pytest.approx(1.0 / 11.0)]


def test_a_sample_that_says_nothing_is_not_kept_for_the_next():
    """Before anything is known of a step alone a flush cost nobody knows what."""
    slow_down = SlowDown()
    flushed(slow_down, *[stretch(10, 5.0)] * 4)
    for one in STEADY:
        slow_down.note_between(one)
    assert flushed(slow_down, *[stretch(10, 0.55)] * 4) == pytest.approx(2.0 / 22.0)


def test_a_flush_that_was_never_at_work_gives_no_figure():
    """There is nothing to divide by."""
    assert flushed(between(*STEADY), *[stretch(10)] * 4, at_work_s=0.0) is None


def test_evaluations_between_flushes_make_no_flush_look_fast():
    """Two of nine stretches held an evaluation of a minute: a step alone still takes what the others say."""
    slow_down = between(*STEADY, stretch(10, more_s=60.0), stretch(10), stretch(10, more_s=60.0), stretch(10))
    assert flushed(slow_down, *[stretch(10, 0.55)] * 4) == pytest.approx(2.0 / 22.0)


def test_an_evaluation_beside_a_flush_is_not_blamed_on_it():
    """One piece took a minute longer than its likes: it is left out."""
    pieces = [stretch(10, 0.55), stretch(10, 0.55), stretch(1, 0.55, more_s=60.0), stretch(10, 0.55)]
    assert flushed(between(*STEADY), *pieces, flush_s=22.0) == pytest.approx(2.0 / 22.0)


def test_a_flush_that_slows_every_step_far_down_is_believed():
    """Thirteen times slower all along is no outlier: 12/13 of the time is lost."""
    assert flushed(between(*STEADY), *[stretch(2, 13 * STEP_S)] * 4) == pytest.approx(12.0 / 13.0)


def test_steps_that_differ_too_much_give_no_figure():
    """Stretches of 0.35 to 0.65 s a step: 2 s of 22 cannot be told from that."""
    uneven = [stretch(10, step_s) for step_s in (0.35, 0.65, 0.4, 0.6, 0.5)]
    assert flushed(between(*uneven), *[stretch(10, 0.55)] * 4) is None


def test_a_figure_needs_steadier_steps_the_less_a_flush_is_at_work():
    """Steps within 1 %: enough for a flush at work all the time, not for one that sleeps 29/30 of it."""
    slow_down = between(*[stretch(10, s) for s in (0.495, 0.505, 0.495, 0.505, 0.5)])
    pieces = [stretch(10, 0.55)] * 4
    assert flushed(slow_down, *pieces) == pytest.approx(2.0 / 22.0)
    assert flushed(slow_down, *pieces, flush_s=30.0, at_work_s=1.0) is None


def test_one_wild_flush_among_five_says_nothing():
    """Whatever held training up beside it: the figure is the median of the last five."""
    slow_down = between(*STEADY)
    usual = [stretch(10, 0.55)] * 4
    figures = [flushed(slow_down, *pieces) for pieces in (usual, usual, [stretch(10, 5.0)] * 4, usual)]
    assert figures == [pytest.approx(2.0 / 22.0)] * 4


def test_noise_of_either_sign_evens_out():
    """A flush that costs nothing, steps that vary by 5 %: far below the prior of 0.02 in the long run."""
    rng, slow_down, figures = random.Random(3), SlowDown(), []
    noisy = lambda: stretch(10, STEP_S * rng.uniform(0.95, 1.05))  # noqa: E731
    for _ in range(100):
        for _ in range(6):
            slow_down.note_between(noisy())
        figures.append(flushed(slow_down, *[noisy() for _ in range(8)]))
    told = [figure for figure in figures if figure is not None]
    assert len(told) > 90
    assert sum(told) / len(told) < 0.01
