"""A storage that slows down to two fifths and recovers: the cap follows within the promised times."""

import pytest

from rampmeter_coordinator.sim.degrading import Degrading


@pytest.mark.parametrize("num_writers", [1, 2, 5])
def test_the_cap_comes_down_at_once_stays_near_the_truth_and_comes_back(num_writers):
    """The promise is for 1, 2, 16 and 64 writers, ten seeds each: `make soak`."""
    result = Degrading(num_writers, seed=1).run()
    assert result.level_s <= 10.0
    assert result.back_s <= 90.0
    assert result.mean_over <= 1.15
    assert result.least_cap >= 0.8
    assert not result.is_stuck
