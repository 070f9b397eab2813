"""POST routes of the agents, one per message, all of the same form. The ledger decides; nothing is decided here."""

from typing import Annotated

from fastapi import APIRouter, Path, Request

from rampmeter.core.messages import (
    Finish,
    Gone,
    Grant,
    Heartbeat,
    Noted,
    Ready,
    Register,
    Release,
    Renew,
    SlotRequest,
    Wait,
)
from rampmeter_coordinator.api.openapi import PROBLEMS
from rampmeter_coordinator.api.route import MessageRoute
from rampmeter_coordinator.engine import Engine
from rampmeter_coordinator.replica import Replica
from rampmeter_coordinator.waiters import Waiting

PoolName = Annotated[str, Path(description="name of the pool")]

router = APIRouter(prefix="/v1/pools/{pool}", route_class=MessageRoute, responses=PROBLEMS)


def engine_of(request: Request) -> Engine:
    """The engine that serves this app. Raises Refused if the lead was lost just now."""
    replica: Replica = request.app.state.replica
    engine = replica.engine
    if engine is None:
        raise replica.no_engine()
    return engine


@router.post("/jobs/register", tags=["jobs"], response_model=Noted)
async def register(request: Request, pool: PoolName, message: Register) -> Waiting:
    """An attempt of a job presents itself; the answer has its plan."""
    return engine_of(request).submit(pool, message)


@router.post("/jobs/heartbeat", tags=["jobs"], response_model=Noted)
async def heartbeat(request: Request, pool: PoolName, message: Heartbeat) -> Waiting:
    """A sign of life when nothing else is in flight."""
    return engine_of(request).submit(pool, message)


@router.post("/jobs/finish", tags=["jobs"], response_model=Noted)
async def finish(request: Request, pool: PoolName, message: Finish) -> Waiting:
    """The attempt ends and promises to write no more."""
    return engine_of(request).submit(pool, message)


@router.post("/slots", tags=["leases"], response_model=Grant | Wait)
async def slots(request: Request, pool: PoolName, message: SlotRequest) -> Waiting:
    """May I checkpoint (or restore) now? Held for up to 25 s while the answer may become a grant."""
    return engine_of(request).submit(pool, message)


@router.post("/leases/ready", tags=["leases"], response_model=Grant | Gone)
async def ready(request: Request, pool: PoolName, message: Ready) -> Waiting:
    """The first byte is in hand: the answer has a rate, or 0 and renewals bring it."""
    return engine_of(request).submit(pool, message)


@router.post("/leases/renew", tags=["leases"], response_model=Grant | Gone)
async def renew(request: Request, pool: PoolName, message: Renew) -> Waiting:
    """The lease goes on. Held for up to 5 s, answered early when the rate changes."""
    return engine_of(request).submit(pool, message)


@router.post("/leases/release", tags=["leases"], response_model=Noted)
async def release(request: Request, pool: PoolName, message: Release) -> Waiting:
    """The save has ended and with it the lease."""
    return engine_of(request).submit(pool, message)
