"""A storage that falls to a quarter and is given back just after the cap fell: cap and intervals come back soon."""

import pytest

from rampmeter_coordinator.sim.returning import Returning


@pytest.mark.parametrize(("num_writers", "seed", "num_falls"), [(1, 1, 2), (1, 3, 2), (2, 2, 3)])
def test_cap_and_intervals_are_back_within_90_s_of_writing(
    num_writers: int, seed: int, num_falls: int
) -> None:
    """Saves of a few seconds. In the last case a writer leaves too little of the cap for another to start."""
    result = Returning(num_writers, seed=seed, num_falls=num_falls).run()
    assert result.least_cap < 0.5
    assert result.back_s <= 90.0
