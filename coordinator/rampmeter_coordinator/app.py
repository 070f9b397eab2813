"""The HTTP application: settings to routes. Opens the store, leads or stands by; drains when it ends."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry

from rampmeter.core.clock import Clock, SystemClock, boot_id
from rampmeter_coordinator.api import health, messages, page, reads
from rampmeter_coordinator.api.forward import Forwarder, Forwarding
from rampmeter_coordinator.api.middleware import Surroundings
from rampmeter_coordinator.api.openapi import set_openapi
from rampmeter_coordinator.api.problem import add_problem_handlers
from rampmeter_coordinator.metrics import HttpMetrics, LeaderCollector, PoolCollector, build_registry
from rampmeter_coordinator.replica import Replica
from rampmeter_coordinator.settings import Settings
from rampmeter_coordinator.store.memory import MemoryStore
from rampmeter_coordinator.store.protocol import Store
from rampmeter_coordinator.store.sqlite import SqliteStore

_ABOUT = "Spreads, paces and times the checkpoints of all training jobs that share one storage system."


def create_app(settings: Settings, *, url: str = "", clock: Clock | None = None) -> FastAPI:
    """The application. Its lifespan raises ConfigError, StoreUnavailable or Fenced if it cannot serve.

    `url` is where other replicas reach this one.
    """
    clock = clock or SystemClock()
    registry = build_registry(version("rampmeter"))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with open_replica(settings, url, clock) as replica:
            app.state.replica, app.state.forwarder = replica, Forwarder(replica)
            collectors = (PoolCollector(replica), LeaderCollector(replica))
            for collector in collectors:
                registry.register(collector)
            yield
            for collector in collectors:
                registry.unregister(collector)
            await app.state.forwarder.close()

    app = FastAPI(
        title="Rampmeter coordinator",
        version=version("rampmeter"),
        description=_ABOUT,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    for router in (messages.router, reads.router, health.router, page.router):
        app.router.routes.extend(router.routes)  # include_router would hide their templates from the metrics
    _surround(app, clock, registry)
    add_problem_handlers(app)
    set_openapi(app)
    return app


@asynccontextmanager
async def open_replica(settings: Settings, url: str, clock: Clock) -> AsyncIterator[Replica]:
    """A replica over the store that the settings name; drained and closed at the end."""
    store = await open_store(settings)
    replica = Replica(settings.pools, store, clock, url=url, boot_id=boot_id(), fresh=settings.fresh)
    try:
        await replica.start()
        yield replica
    finally:
        await replica.close()


async def open_store(settings: Settings) -> Store:
    """The store that the settings name. Raises ConfigError or StoreUnavailable."""
    if settings.store == "memory":
        return MemoryStore(log_rows=settings.log_rows)
    if settings.store == "sqlite":
        return await SqliteStore.open(
            settings.data_dir, synchronous=settings.synchronous, log_rows=settings.log_rows
        )
    from rampmeter_coordinator.store.redis import RedisStore  # noqa: PLC0415  # an extra: only who uses it needs it

    return await RedisStore.open(settings.store, log_rows=settings.log_rows)


def _surround(app: FastAPI, clock: Clock, registry: CollectorRegistry) -> None:
    routes = [route.path for route in app.routes if isinstance(route, APIRoute)]
    observe = HttpMetrics(registry, routes).observe
    app.state.registry, app.state.clock, app.state.observe = registry, clock, observe
    app.add_middleware(Forwarding)
    app.add_middleware(Surroundings, clock=clock, observe=observe)
