"""The long form of the fail-over proofs: every scenario with real processes, and a table of what was measured.

`make chaos` runs it; `--only NAME` runs one scenario, `--kills N` changes how often a leader is killed.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
from pathlib import Path

from failover.leader_kill import LIMIT_S, kill_leaders
from support.redis_server import redis_server
from support.replicas import replicas

KILLS = 20


def leader_kills(directory, args):
    """kill -9 of the leader with 50 agents writing."""
    (directory / "redis").mkdir()
    with redis_server(directory / "redis") as url, replicas(directory, url) as deployment:
        fleet, takeovers = asyncio.run(kill_leaders(deployment, kills=args.kills))
    seconds = sorted(takeover.new_grant_s for takeover in takeovers)
    assert seconds[-1] <= LIMIT_S, seconds
    yield "kills of the leader", len(seconds)
    yield "first new grant, median / worst, s", f"{statistics.median(seconds):.2f} / {seconds[-1]:.2f}"
    yield from _usage(fleet)


def _usage(fleet):
    fleet.check()
    yield "leases lost", sum(len(agent.fences) - 1 for agent in fleet.holders)
    yield "most in use / budget", f"{fleet.worst / 800_000_000:.4f}"
    yield "slots granted", len(fleet.grants)


SCENARIOS = {"leader-kill": leader_kills}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=sorted(SCENARIOS))
    parser.add_argument("--kills", type=int, default=KILLS)
    args = parser.parse_args()
    for name, scenario in SCENARIOS.items():
        if args.only in (None, name):
            print(f"{name}: {scenario.__doc__}")
            with tempfile.TemporaryDirectory(prefix="rampmeter-chaos-") as directory:
                for what, value in scenario(Path(directory), args):
                    print(f"  {what:<40} {value}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
