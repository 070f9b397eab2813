"""The leader is killed under load: a standby grants within 5 s, nobody loses a lease, nobody gets too much."""

import asyncio

import pytest

from failover.leader_kill import LIMIT_S, kill_leaders
from support.redis_process import RedisProcess, running_redis
from support.replicas import replicas

pytestmark = [pytest.mark.system, pytest.mark.debian("redis-server")]

KILLS = 2


def test_a_standby_takes_over_from_a_killed_leader(tmp_path):
    """kill -9 of the leader with 50 agents writing: new grants within 5 s under a newer epoch, old leases go on."""
    server = RedisProcess(tmp_path / "redis")
    with running_redis(server), replicas(tmp_path, server.url) as deployment:
        fleet, takeovers = asyncio.run(kill_leaders(deployment, kills=KILLS))
    assert len(takeovers) == KILLS
    assert max(takeover.new_grant_s for takeover in takeovers) <= LIMIT_S
    assert fleet.worst > 0
