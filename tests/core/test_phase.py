"""Where in its interval a job starts."""

import random

import pytest

from rampmeter.core import phase


def test_the_first_save_comes_within_ten_minutes() -> None:
    """Uniform in [0, min(T, 600 s))."""
    rng = random.Random(1)
    for interval_s in (30.0, 600.0, 86_400.0):
        draws = [phase.first_save_in(interval_s, rng) for _ in range(2000)]
        assert min(draws) >= 0.0
        assert max(draws) < min(interval_s, 600.0)
        assert sum(draws) / len(draws) == pytest.approx(min(interval_s, 600.0) / 2, rel=0.05)


def test_a_restore_waits_out_at_most_half_a_minute_of_silence() -> None:
    """Uniform in [0, 30 s), so that jobs that lost the same coordinator do not read together."""
    rng = random.Random(1)
    draws = [phase.read_unasked_in(rng) for _ in range(2000)]
    assert min(draws) >= 0.0
    assert max(draws) < 30.0
    assert sum(draws) / len(draws) == pytest.approx(15.0, rel=0.05)


def test_an_offset_lies_in_the_interval_and_repeats_with_its_seed() -> None:
    """In [0, T), decided by the seed alone."""
    draws = [phase.draw_offset(300.0, [], random.Random(seed)) for seed in range(200)]
    assert all(0.0 <= draw < 300.0 for draw in draws)
    assert draws == [phase.draw_offset(300.0, [], random.Random(seed)) for seed in range(200)]


def test_the_better_of_two_draws_keeps_away_from_others() -> None:
    """The distance counts around the end of the interval too."""

    class Fixed(random.Random):
        def __init__(self, *values: float) -> None:
            super().__init__()
            self._values = list(values)

        def random(self) -> float:
            return self._values.pop(0)

    assert phase.draw_offset(100.0, [50.0], Fixed(0.5, 0.9)) == 90.0
    assert phase.draw_offset(100.0, [99.0], Fixed(0.01, 0.7)) == 70.0
    assert phase.draw_offset(100.0, [250.0], Fixed(0.52, 0.3)) == 30.0


@pytest.mark.parametrize(
    ("not_before_s", "due_s"), [(0.0, 1040.0), (1040.0, 1040.0), (1040.1, 1140.0), (1999.0, 2040.0)]
)
def test_the_second_save_is_due_at_registration_plus_offset(not_before_s: float, due_s: float) -> None:
    """The first such time modulo T that is not before the end of the dry run."""
    assert phase.due_after_registration(1000.0, 40.0, 100.0, not_before_s) == pytest.approx(due_s)


def test_an_offset_beyond_the_interval_is_taken_modulo_it() -> None:
    """An interval that became shorter meanwhile."""
    assert phase.due_after_registration(1000.0, 340.0, 100.0, 0.0) == 1040.0


def test_what_remains_is_scaled() -> None:
    """next = now + remaining * T_new / T_old; what is overdue stays due."""
    assert phase.rescaled(160.0, 100.0, 100.0, 200.0) == 220.0
    assert phase.rescaled(160.0, 100.0, 100.0, 50.0) == 130.0
    assert phase.rescaled(90.0, 100.0, 100.0, 200.0) == 100.0
