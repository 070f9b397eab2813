"""kill -9 of the leader while agents write, again and again: how long until somebody new is granted.

Used by the suite with few kills, by `make chaos` with twenty.
"""

import asyncio
import time
from dataclasses import dataclass

from support.fleet import Fleet
from support.waiting import until

LIMIT_S = 5.0
RENEWALS_S = 7.0
"""In this time every holder has renewed at least once."""


@dataclass(frozen=True, slots=True)
class Takeover:
    """One kill: seconds until the first new slot was granted, and until the first new lease had a rate.

    Leases of before come first: what they hold is written before newcomers get bandwidth.
    """

    new_grant_s: float
    new_rate_s: float


async def kill_leaders(deployment, *, kills, holders=30, others=20):
    """Kill the leader `kills` times; the dead one is started again each time. Gives the fleet and the take-overs."""
    takeovers = []
    async with Fleet(deployment.urls, holders=holders, others=others) as fleet:
        await until(lambda: fleet.all_write() and len(fleet.grants) > holders, what="all holders to write")
        await pass_s(RENEWALS_S)  # a lease that was never renewed is too short for a take-over
        for _ in range(kills):
            leader = await asyncio.to_thread(deployment.leader)
            index = deployment.members.index(leader)
            await new_grant(fleet, since_s=fleet.now_s(), fence=(0, 0))
            fence, killed_s = fleet.fence_now(), fleet.now_s()
            leader.process.kill()
            await asyncio.to_thread(leader.process.wait)
            slot = await new_slot(fleet, since_s=killed_s, fence=fence)
            grant = await new_grant(fleet, since_s=killed_s, fence=fence)
            takeovers.append(Takeover(new_grant_s=slot.at_s - killed_s, new_rate_s=grant.at_s - killed_s))
            await asyncio.to_thread(leader.start)
            fleet.urls[index] = leader.url
            await pass_s(RENEWALS_S)
            fleet.check()
    return fleet, takeovers


async def pass_s(seconds):
    """Let the fleet go on for so long."""
    end_s = time.monotonic() + seconds
    await until(lambda: time.monotonic() > end_s, what="the time", limit_s=seconds + 30)


async def new_slot(fleet, *, since_s, fence):
    """The first slot that was granted after `since_s` under a newer epoch than that of `fence`."""
    return await first_of(lambda: fleet.new_slot_since(since_s, fence), what="a new slot")


async def new_grant(fleet, *, since_s, fence, limit_s=30.0):
    """The first slot with a rate after `since_s` under a newer epoch than that of `fence`."""
    return await first_of(lambda: fleet.new_grant_since(since_s, fence), what="a new rate", limit_s=limit_s)


async def first_of(look, *, what, limit_s=30.0):
    """Wait until `look` finds something."""
    found = []

    def seen():
        found[:] = [look()]
        return found[0] is not None

    await until(seen, what=what, limit_s=limit_s)
    return found[0]
