"""One writer at a time, always somebody waiting: lead-ins never idle the storage."""

import pytest

from rampmeter_coordinator.sim.arming import Arming

SHORT_S = 1800.0


def test_a_lead_in_of_twice_the_write_leaves_the_storage_busy_while_anybody_waits():
    result = Arming([30.0], seed=1).run(SHORT_S)
    assert result.waited_s > 0.95 * SHORT_S
    assert result.busy_share >= 0.95


@pytest.mark.parametrize("max_writers", [None, 1])
def test_mixed_lead_ins_leave_the_storage_busy_and_nobody_out(max_writers):
    result = Arming([0.0, 2.0, 10.0, 30.0, 90.0], seed=2, max_writers=max_writers).run(SHORT_S)
    assert result.waited_s > 0.95 * SHORT_S
    assert result.busy_share >= 0.93
    assert min(result.num_saves) >= 0.5 * max(result.num_saves)
