"""GET routes for people and programs: frozen views of a pool, nothing that changes it."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request

from rampmeter_coordinator.api.messages import PoolName
from rampmeter_coordinator.api.openapi import only
from rampmeter_coordinator.api.route import leading_engine
from rampmeter_coordinator.engine import Engine
from rampmeter_coordinator.model.views import JobView, LeaseView, PoolView, TimelineRow

MAX_PAGE = 1000

router = APIRouter(prefix="/v1/pools", tags=["reads"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """All pools of this coordinator."""

    pools: list[PoolView]


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """Some jobs in the order of their job_uid. `next_after` is there while more follow: pass it as `after`."""

    jobs: list[JobView]
    num_jobs: int
    next_after: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leases:
    """All live leases of a pool."""

    leases: list[LeaseView]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Recent changes of rates, oldest first. `now_s` is the same clock as `at_s`."""

    now_s: float
    rows: list[TimelineRow]


def engine_of(request: Request) -> Engine:
    """The engine that serves this app. Raises Refused if the lead was lost just now."""
    return leading_engine(request.app.state.replica)


@router.get("", responses=only(400), response_model_exclude_none=True)
async def pools(request: Request) -> Pools:
    """Every pool in figures."""
    engine = engine_of(request)
    return Pools(pools=[engine.pool_view(name) for name in engine.pools])


@router.get("/{pool}", responses=only(400, 404, 422), response_model_exclude_none=True)
async def pool_view(request: Request, pool: PoolName) -> PoolView:
    """One pool in figures."""
    return engine_of(request).pool_view(pool)


@router.get("/{pool}/jobs", responses=only(400, 404, 422), response_model_exclude_none=True)
async def jobs(
    request: Request,
    pool: PoolName,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    after: Annotated[str, Query(max_length=32)] = "",
) -> Jobs:
    """The jobs of a pool, page by page."""
    everything = engine_of(request).job_views(pool)
    rest = sorted((job for job in everything if job.job_uid > after), key=lambda job: job.job_uid)
    page = rest[:limit]
    next_after = page[-1].job_uid if len(rest) > limit else None
    return Jobs(jobs=page, num_jobs=len(everything), next_after=next_after)


@router.get("/{pool}/leases", responses=only(400, 404, 422), response_model_exclude_none=True)
async def leases(request: Request, pool: PoolName) -> Leases:
    """The live leases of a pool."""
    return Leases(leases=engine_of(request).lease_views(pool))


@router.get("/{pool}/timeline", responses=only(400, 404, 422), response_model_exclude_none=True)
async def timeline(request: Request, pool: PoolName) -> Timeline:
    """Who may write how fast since when."""
    engine = engine_of(request)
    return Timeline(now_s=engine.now_s(), rows=list(engine.timeline(pool)))
