"""kill -9 of a coordinator with a SQLite store at random instants, again and again, while agents write."""

import asyncio
import random

from failover.leader_kill import new_grant, pass_s
from support.fleet import Fleet
from support.waiting import until

LONGEST_LIFE_S = 4.0


async def kill_coordinator(served, *, kills, holders=30, others=20, seed=11):
    """Kill and start it `kills` times. Gives the fleet and the seconds from each return to a new grant."""
    seeded, back = random.Random(seed), []
    async with Fleet([served.url], holders=holders, others=others) as fleet:
        await until(lambda: fleet.all_write() and len(fleet.grants) > holders, what="all holders to write")
        for _ in range(kills):
            await pass_s(seeded.uniform(0.0, LONGEST_LIFE_S))
            fence = fleet.fence_now()
            served.kill()
            await asyncio.to_thread(served.start)
            fleet.urls[0] = served.url
            back_s = fleet.now_s()
            grant = await new_grant(fleet, since_s=back_s, fence=fence)
            back.append(grant.at_s - back_s)
            fleet.check(may_lapse=True)  # a coordinator that lives for seconds only may extend nothing
    return fleet, back
