"""The long form of the fail-over proofs: every scenario with real processes, and a table of what was measured.

`make chaos` runs it; `--only NAME` runs one scenario, `--kills N` changes how often a process is killed.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
from pathlib import Path

from failover.leader_kill import LIMIT_S, kill_leaders
from failover.lost_ranks import failed_write, killed_rank, stopped_rank
from failover.redis_faults import SHORT_LEASES, freeze, kill_and_restart, lose_commits
from failover.sqlite_kills import kill_coordinator
from support.coordinator import coordinator
from support.fleet import BUDGET
from support.redis_process import RedisProcess, running_redis, sentinel_service
from support.replicas import OPTIONS, replicas

LEADER_KILLS = 20
SQLITE_KILLS = 50
FROZEN_S = 12.0


def leader_kill(directory, kills):
    """kill -9 of the leader of 3 replicas, 50 agents writing."""
    server = RedisProcess(directory / "redis", "--appendonly", "yes")
    with running_redis(server), replicas(directory, server.url) as deployment:
        fleet, takeovers = asyncio.run(kill_leaders(deployment, kills=kills or LEADER_KILLS))
    seconds = [takeover.new_grant_s for takeover in takeovers]
    yield from _spread("first new grant after the kill", seconds)
    yield from _spread("first rate of a new lease", [takeover.new_rate_s for takeover in takeovers])
    yield from _usage(fleet)
    assert max(seconds) <= LIMIT_S


def redis_frozen(directory, _):
    """SIGSTOP of Redis for 12 s, 3 replicas, 50 agents writing."""
    server = RedisProcess(directory / "redis")
    with running_redis(server), replicas(directory, server.url) as deployment:
        fleet, back_s = asyncio.run(freeze(deployment, server, frozen_s=FROZEN_S))
    yield "first new grant after its return, s", f"{back_s:.2f}"
    yield from _usage(fleet)


def redis_killed(directory, _):
    """kill -9 of Redis with an append-only file, away for 5 s."""
    server = RedisProcess(directory / "redis", "--appendonly", "yes")
    with running_redis(server), replicas(directory, server.url) as deployment:
        fleet, back_s = asyncio.run(kill_and_restart(deployment, server, away_s=5.0))
    yield "first new grant after its return, s", f"{back_s:.2f}"
    yield from _usage(fleet)


def sentinel_failover(directory, _):
    """Fail-over to a replica that lacks 2 s of confirmed commits; leases of 10 s, so grace of 11 s and more."""
    config = directory / "rampmeter.toml"
    config.write_text(SHORT_LEASES)
    options = ("--fresh", "--config", str(config))
    with (
        sentinel_service(directory) as servers,
        replicas(directory, servers[-1].url, options=options) as deployment,
    ):
        fleet, back_s = asyncio.run(lose_commits(deployment, *servers))
    yield "first new grant after the loss, s", f"{back_s:.2f}"
    yield "most in use / budget", f"{fleet.worst / BUDGET:.4f}"


def sqlite_kill(directory, kills):
    """kill -9 of a coordinator with SQLite at random instants, 50 agents writing."""
    with coordinator(directory, *OPTIONS) as served:
        fleet, back = asyncio.run(kill_coordinator(served, kills=kills or SQLITE_KILLS))
    yield from _spread("first new grant after the restart", back)
    yield from _usage(fleet)


def _spread(what, seconds):
    yield "times", len(seconds)
    yield f"{what}, median / worst, s", f"{statistics.median(seconds):.2f} / {max(seconds):.2f}"


def _usage(fleet):
    num_lost = sum(len(agent.lost) for agent in fleet.agents)
    num_lapsed = sum(agent.lapses for agent in fleet.holders)
    yield "leases lost, of all / run out, of those held", f"{num_lost} / {num_lapsed}"
    yield "most in use / budget", f"{fleet.worst / BUDGET:.4f}"
    yield "slots granted", len(fleet.grants)


SCENARIOS = {
    "leader-kill": leader_kill,
    "redis-frozen": redis_frozen,
    "redis-killed": redis_killed,
    "sentinel-failover": sentinel_failover,
    "sqlite-kill": sqlite_kill,
    "rank-failed-write": failed_write,
    "rank-killed": killed_rank,
    "rank-stopped": stopped_rank,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=SCENARIOS)
    parser.add_argument("--kills", type=int)
    args = parser.parse_args()
    for name, scenario in SCENARIOS.items():
        if args.only in (None, name):
            print(f"{name}: {scenario.__doc__}", flush=True)
            with tempfile.TemporaryDirectory(prefix="rampmeter-chaos-") as directory:
                for what, value in scenario(Path(directory), args.kills):
                    print(f"  {what:<50} {value}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
