"""Redis stands still, dies, or forgets, while 50 agents write: leases go on where nothing was lost, nobody ever gets
too much."""

import asyncio

import pytest

from failover.redis_faults import SHORT_LEASES, freeze, kill_and_restart, lose_commits
from support.redis_process import RedisProcess, running_redis, sentinel_service
from support.replicas import replicas

pytestmark = [pytest.mark.system, pytest.mark.debian("redis-server")]


def test_redis_that_stands_still_costs_no_lease(tmp_path):
    """SIGSTOP for 12 s: nobody is granted meanwhile, every lease goes on, and grants follow within 5 s."""
    server = RedisProcess(tmp_path / "redis")
    with running_redis(server), replicas(tmp_path, server.url) as deployment:
        _, back_s = asyncio.run(freeze(deployment, server, frozen_s=12.0))
    assert back_s <= 5.0


def test_redis_that_is_killed_comes_back_with_every_lease(tmp_path):
    """kill -9 with an append-only file, away for 5 s: the former leader finds its newest commit and needs no grace."""
    server = RedisProcess(tmp_path / "redis", "--appendonly", "yes")
    with running_redis(server), replicas(tmp_path, server.url) as deployment:
        _, back_s = asyncio.run(kill_and_restart(deployment, server, away_s=5.0))
    assert back_s <= 5.0


def test_a_fail_over_that_lost_commits_is_noticed(tmp_path):
    """The promoted replica lacks confirmed commits: nobody new is served until every lease of before is over."""
    config = tmp_path / "rampmeter.toml"
    config.write_text(SHORT_LEASES)
    with sentinel_service(tmp_path) as (master, follower, lagging, sentinel):
        with replicas(tmp_path, sentinel.url, options=("--fresh", "--config", str(config))) as deployment:
            _, back_s = asyncio.run(lose_commits(deployment, master, follower, lagging, sentinel))
            logs = "".join(member.log() for member in deployment.members)
    assert back_s >= 11.0
    assert "grace for" in logs
