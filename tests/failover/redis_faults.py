"""What happens to jobs when Redis stands still, dies and comes back, or fails over and loses what it had confirmed."""

import asyncio

from failover.leader_kill import RENEWALS_S, new_grant, pass_s
from support.fleet import Fleet
from support.waiting import until, wait_for

SHORT_LEASES = '[pools.default]\ncapacity = "1GB/s"\nttl = "10s"\n'
"""A settings file: grace is 11 s then."""


async def freeze(deployment, server, *, frozen_s, holders=30, others=20):
    """SIGSTOP of Redis for `frozen_s`. Gives the fleet and the seconds from its return to the first new grant."""
    async with Fleet(deployment.urls, holders=holders, others=others) as fleet:
        await until(lambda: fleet.all_write() and len(fleet.grants) > holders, what="all holders to write")
        await pass_s(RENEWALS_S)
        server.freeze()
        try:
            await pass_s(frozen_s)
        finally:
            back_s = fleet.now_s()
            server.thaw()
        grant = await new_grant(fleet, since_s=back_s, fence=(0, 0))
        await pass_s(RENEWALS_S)
        fleet.check()
    return fleet, grant.at_s - back_s


async def kill_and_restart(deployment, server, *, away_s, holders=30, others=20):
    """kill -9 of Redis, started again after `away_s` from its append-only file. Gives the same as `freeze`."""
    async with Fleet(deployment.urls, holders=holders, others=others) as fleet:
        await until(lambda: fleet.all_write() and len(fleet.grants) > holders, what="all holders to write")
        await pass_s(RENEWALS_S)
        server.kill()
        await pass_s(away_s)
        await asyncio.to_thread(server.start)
        back_s = fleet.now_s()
        grant = await new_grant(fleet, since_s=back_s, fence=(0, 0))
        await pass_s(RENEWALS_S)
        fleet.check()
    return fleet, grant.at_s - back_s


async def lose_commits(deployment, master, follower, lagging, sentinel, *, holders=10, others=10):
    """Fail over to a replica that was cut off for 2 s. Gives the fleet and the seconds until the first new grant."""
    async with Fleet(deployment.urls, holders=holders, others=others) as fleet:
        await until(lambda: fleet.all_write() and len(fleet.grants) > holders, what="all holders to write")
        lagging.freeze()
        master.call("CLIENT", "KILL", "TYPE", "replica")
        before = fleet.fence_now()
        await until(lambda: fleet.fence_now() > before, what="a commit that the replica does not get")
        await pass_s(2.0)
        fence = fleet.fence_now()
        master.kill()
        follower.kill()
        lost_s = fleet.now_s()
        lagging.thaw()
        await asyncio.to_thread(
            wait_for, lambda: sentinel.master_port() == lagging.port, what="the fail-over"
        )
        await asyncio.to_thread(follower.start)
        grant = await new_grant(fleet, since_s=lost_s, fence=fence, limit_s=90.0)
        await pass_s(RENEWALS_S)
        assert not fleet.violations, fleet.violations[:5]
    return fleet, grant.at_s - lost_s
