"""What failures change of plans can be replayed: in a first life, and in one that goes on from another."""

import asyncio
import random
from dataclasses import replace

from rampmeter.core.clock import ManualClock
from rampmeter.core.messages import Outcome
from rampmeter_coordinator.engine import Engine
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.replay import replay
from rampmeter_coordinator.store.memory import MemoryStore
from support.jobs import Job

POOL = PoolConfig(name="lustre", capacity_bytes_per_s=10**12)


async def _attempt(engine, clock, job, draw, *, looks):
    """One attempt: it registers, works for a while, saves now and then, and is heard of no more."""
    job.attempt, job.seq, job.acked = job.attempt + 1, 0, 0
    own = {"mtbf_s": 20_000.0} if job.attempt % 2 else {}
    await job.tell(engine, job.register(restart_s=60.0, **own))
    step = 0
    for _ in range(draw.randrange(2, 12)):
        clock.advance(45.0)
        step += 10
        told = {"restored_step": 0, "load_s": 5.0, "warm_up_s": 5.0} if step > 10 else {}
        await job.tell(engine, job.heartbeat(step, **told))
        if looks:
            engine.pool_view("lustre")
            engine.job_views("lustre")
        if draw.random() < 0.5:
            await job.tell(engine, job.slot(age_s=None))
            release = job.release()
            if draw.random() < 0.3:
                release = replace(release, outcome=Outcome.FAILED)
            await job.tell(engine, release)


def lives(seed, num_lives):
    """The log of the last of some coordinators, and how many failures it knew."""

    async def scenario():
        store, clock, draw = MemoryStore(log_rows=100_000), ManualClock(), random.Random(seed)
        jobs, totals = [Job(attempt=0) for _ in range(4)], None
        for _ in range(num_lives):
            engine = await Engine.open((POOL,), store, clock, boot_id="boot", fresh=True)
            for _ in range(24):
                await _attempt(engine, clock, draw.choice(jobs), draw, looks=draw.random() < 0.5)
                clock.advance(draw.choice((5.0, 80.0, 400.0)))
            totals = engine.totals("lustre")
            await engine.close()
        return totals, await store.segment("lustre")

    return asyncio.run(scenario())


def test_a_replay_of_failures_gives_the_same_replies():
    """Attempts that die, come back and are looked at in between: the plans that follow come out again."""
    for seed in range(4):
        totals, segment = lives(seed, 1 + seed % 2)
        assert totals.failures > 4
        result = replay(segment)
        assert result.difference is None, seed
        assert result.num_decisions > 100
