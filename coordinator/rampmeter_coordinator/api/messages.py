"""POST routes of the agents, one per message, all of the same form. The ledger decides; nothing is decided here.

These functions are declarations: `MessageRoute.take` does the work.
"""

from typing import Annotated

from fastapi import APIRouter, Path

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

PoolName = Annotated[str, Path(description="name of the pool")]

router = APIRouter(prefix="/v1/pools/{pool}", route_class=MessageRoute, responses=PROBLEMS)


@router.post("/jobs/register", tags=["jobs"], response_model=Noted)
def register(pool: PoolName, message: Register) -> None:
    """An attempt of a job presents itself; the answer has its plan."""


@router.post("/jobs/heartbeat", tags=["jobs"], response_model=Noted)
def heartbeat(pool: PoolName, message: Heartbeat) -> None:
    """A sign of life when nothing else is in flight."""


@router.post("/jobs/finish", tags=["jobs"], response_model=Noted)
def finish(pool: PoolName, message: Finish) -> None:
    """The attempt ends and promises to write no more."""


@router.post("/slots", tags=["leases"], response_model=Grant | Wait)
def slots(pool: PoolName, message: SlotRequest) -> None:
    """May I checkpoint (or restore) now? Held for up to 25 s while the answer may become a grant."""


@router.post("/leases/ready", tags=["leases"], response_model=Grant | Gone)
def ready(pool: PoolName, message: Ready) -> None:
    """The first byte is in hand: the answer has a rate, or 0 and renewals bring it."""


@router.post("/leases/renew", tags=["leases"], response_model=Grant | Gone)
def renew(pool: PoolName, message: Renew) -> None:
    """The lease goes on. Held for up to 5 s, answered early when the rate changes."""


@router.post("/leases/release", tags=["leases"], response_model=Noted)
def release(pool: PoolName, message: Release) -> None:
    """The save has ended and with it the lease."""


def by_path() -> dict[str, MessageRoute]:
    """Every message's route by what follows the name of the pool in its path."""
    routes = (route for route in router.routes if isinstance(route, MessageRoute))
    return {route.path.removeprefix(f"{router.prefix}/"): route for route in routes}
