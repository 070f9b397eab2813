"""A writer hangs in the middle of its save: others have its share soon, and its lease is taken back."""

import pytest

from rampmeter_coordinator.sim.hanging import Hanging


@pytest.mark.parametrize(("num_writers", "seed"), [(1, 1), (2, 1), (4, 1)])
def test_the_share_of_a_hung_writer_is_in_use_within_a_minute(num_writers, seed):
    """The promise is for ten seeds each: `make soak`."""
    result = Hanging(num_writers, seed=seed).run()
    assert result.reused_s <= 60.0
    assert 60.0 <= result.revoked_s <= result.due_s
