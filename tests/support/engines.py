"""An engine over a store, and jobs that speak to it without HTTP."""

from contextlib import asynccontextmanager

from rampmeter.core.clock import SystemClock
from rampmeter_coordinator.engine import Engine
from rampmeter_coordinator.errors import Refused
from rampmeter_coordinator.model.pool import PoolConfig
from support.jobs import Job
from support.waiting import until

POOL = PoolConfig(name="lustre", capacity_bytes_per_s=10**9)


@asynccontextmanager
async def engine_over(store, *, clock=None, boot_id="boot", fresh=True, max_inbox=4096, pools=(POOL,)):
    """An open engine, closed at the end."""
    clock = clock or SystemClock()
    engine = await Engine.open(pools, store, clock, boot_id=boot_id, fresh=fresh, max_inbox=max_inbox)
    try:
        yield engine
    finally:
        store.gate.set()
        await engine.close()


async def registered(engine, *, num=1):
    """Jobs that the pool knows and that have confirmed their plan."""
    jobs = [Job() for _ in range(num)]
    for job in jobs:
        await job.tell(engine, job.register())
        await job.tell(engine, job.heartbeat())
    return jobs


async def writer_and_waiter(engine):
    """One job that has the whole budget, and one whose slot request is held."""
    writer, waiter = await registered(engine, num=2)
    grant = await writer.tell(engine, writer.slot())
    assert grant.bytes_per_s == POOL.budget_bytes_per_s
    request = waiter.slot()
    held = engine.submit("lustre", request)
    await until(lambda: engine.pool_view("lustre").num_waiting == 1, what="the request to be held")
    assert not held.done()
    return writer, waiter, request, held


def refusal_of(future):
    """The refusal that a finished future carries."""
    error = future.exception()
    assert isinstance(error, Refused)
    return error.refusal
