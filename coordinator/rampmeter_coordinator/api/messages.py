"""POST routes of the agents, one per message, all of the same form. The ledger decides; nothing is decided here."""

from typing import Annotated

from fastapi import APIRouter, Path, Request

from rampmeter.core.messages import (
    AnyAnswer,
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
from rampmeter_coordinator.api.route import MessageRoute, unless_gone
from rampmeter_coordinator.engine import Engine

PoolName = Annotated[str, Path(description="name of the pool")]

router = APIRouter(prefix="/v1/pools/{pool}", route_class=MessageRoute, responses=PROBLEMS)


def engine_of(request: Request) -> Engine:
    """The engine that serves this app."""
    engine: Engine = request.app.state.engine
    return engine


@router.post("/jobs/register", tags=["jobs"], response_model=Noted)
async def register(request: Request, pool: PoolName, message: Register) -> AnyAnswer:
    """An attempt of a job presents itself; the answer has its plan."""
    return await engine_of(request).submit(pool, message)


@router.post("/jobs/heartbeat", tags=["jobs"], response_model=Noted)
async def heartbeat(request: Request, pool: PoolName, message: Heartbeat) -> AnyAnswer:
    """A sign of life when nothing else is in flight."""
    return await engine_of(request).submit(pool, message)


@router.post("/jobs/finish", tags=["jobs"], response_model=Noted)
async def finish(request: Request, pool: PoolName, message: Finish) -> AnyAnswer:
    """The attempt ends and promises to write no more."""
    return await engine_of(request).submit(pool, message)


@router.post("/slots", tags=["leases"], response_model=Grant | Wait)
async def slots(request: Request, pool: PoolName, message: SlotRequest) -> AnyAnswer:
    """May I checkpoint (or restore) now? Held for up to 25 s while the answer may become a grant."""
    return await unless_gone(request, engine_of(request).submit(pool, message))


@router.post("/leases/ready", tags=["leases"], response_model=Grant | Gone)
async def ready(request: Request, pool: PoolName, message: Ready) -> AnyAnswer:
    """The first byte is in hand: the answer has a rate, or 0 and renewals bring it."""
    return await engine_of(request).submit(pool, message)


@router.post("/leases/renew", tags=["leases"], response_model=Grant | Gone)
async def renew(request: Request, pool: PoolName, message: Renew) -> AnyAnswer:
    """The lease goes on. Held for up to 5 s, answered early when the rate changes."""
    return await unless_gone(request, engine_of(request).submit(pool, message))


@router.post("/leases/release", tags=["leases"], response_model=Noted)
async def release(request: Request, pool: PoolName, message: Release) -> AnyAnswer:
    """The save has ended and with it the lease."""
    return await engine_of(request).submit(pool, message)
