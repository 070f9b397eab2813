"""Is the process alive, may requests come here, and what are the figures. For supervisors and Prometheus.

/livez must not depend on anything but the event loop: a store that is down is no reason to kill the coordinator.
"""

from dataclasses import dataclass
from typing import Literal

from fastapi import APIRouter, Request
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.responses import Response

from rampmeter_coordinator.api.openapi import only
from rampmeter_coordinator.errors import Refused
from rampmeter_coordinator.replica import Replica

router = APIRouter(tags=["health"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The good news."""

    status: Literal["alive", "ready"]


@router.get("/livez")
async def livez() -> Health:
    """The process runs and its loop turns."""
    return Health(status="alive")


@router.get("/readyz", responses=only(503))
async def readyz(request: Request) -> Health:
    """Requests may come here: a commit of every pool went through just now, or another replica leads and is known."""
    replica: Replica = request.app.state.replica
    why_not = await replica.not_ready_because()
    if why_not is not None:
        raise Refused(why_not, retry_after_s=1)
    return Health(status="ready")


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(request: Request) -> Response:
    """Prometheus text format."""
    registry: CollectorRegistry = request.app.state.registry
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)
