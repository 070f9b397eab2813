"""What the coordinator's HTTP tests share: one real process for tests that leave no trace, one app for the others."""

import asyncio
from contextlib import asynccontextmanager

import httpx
import pytest

from rampmeter_coordinator.app import create_app
from rampmeter_coordinator.settings import read_settings
from support.coordinator import coordinator


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A coordinator process with one pool `default` of 1 GB/s."""
    with coordinator(tmp_path_factory.mktemp("served"), "--fresh", "--capacity", "1GB/s") as process:
        yield process


@pytest.fixture
def in_app(tmp_path):
    """Runs a scenario `(client, app)` against an application in this process."""

    @asynccontextmanager
    async def opened():
        options = {"data_dir": str(tmp_path), "fresh": True, "capacity": "1GB/s"}
        app = create_app(read_settings(options, {}))
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                yield client, app

    def run(scenario):
        async def whole():
            async with opened() as (client, app):
                return await scenario(client, app)

        return asyncio.run(whole())

    return run
