"""The embedded coordinator is killed at any instant: every lease goes on after its restart, nobody gets too much."""

import asyncio

import pytest

from failover.sqlite_kills import kill_coordinator
from support.coordinator import coordinator

pytestmark = pytest.mark.system

KILLS = 5


def test_a_coordinator_that_is_killed_at_random_instants_loses_nothing(tmp_path):
    """kill -9 with 50 agents writing: the same fences go on, the sum is never above the budget, grants go on."""
    with coordinator(tmp_path, "--fresh", "--capacity", "1GB/s") as served:
        fleet, back = asyncio.run(kill_coordinator(served, kills=KILLS))
    assert len(back) == KILLS
    assert fleet.worst > 0
