"""Clients that are gone leave nothing behind: neither requests nor sockets."""

import asyncio

import pytest

from benchmarks.http_cycle import Client
from rampmeter.core.messages import Grant, Heartbeat, Register, SlotRequest
from support.coordinator import coordinator
from support.jobs import new_uid
from support.waiting import until

pytestmark = pytest.mark.system

NUM_POOLS = 40
NUM_EACH = 25
POOL = """
[pools.pool{}]
capacity = "1GB/s"
ttl = "600s"
first_ttl = "600s"
"""


async def held_request(served, pool):
    """A job whose slot request is held on a connection of its own."""
    client = await Client.connect(served, new_uid(), pool)
    await client.tell(client.word(Register))
    await client.tell(client.word(Heartbeat, step=1))
    asking = asyncio.ensure_future(client.tell(client.word(SlotRequest, num_bytes=10**6)))
    return client, asking


def test_a_thousand_held_requests_go_with_their_connections(tmp_path):
    """Connections that break, without a word, take their requests with them, and give their sockets back."""
    config = tmp_path / "config.toml"
    config.write_text("".join(POOL.format(number) for number in range(NUM_POOLS)))

    async def scenario(served):
        before = served.num_sockets()
        for number in range(NUM_POOLS):
            writer = await Client.connect(served, new_uid(), f"pool{number}")
            await writer.tell(writer.word(Register))
            await writer.tell(writer.word(Heartbeat, step=1))
            much = {"num_bytes": 14 * 10**9, "max_bytes_per_s": 10**12}
            assert isinstance(await writer.tell(writer.word(SlotRequest, **much)), Grant)
            writer.close()
        held = [
            await held_request(served, f"pool{number % NUM_POOLS}") for number in range(NUM_POOLS * NUM_EACH)
        ]
        with served.client() as client:
            await until(lambda: num_held(client) == len(held), what="all requests to be held")
        for client, asking in held:
            client.abort()
            asking.cancel()
        await until(lambda: served.num_sockets() <= before, what="the sockets to be closed")
        with served.client() as client:
            await until(lambda: num_held(client) == 0, what="the requests to be let go", limit_s=10)

    with coordinator(tmp_path, "--fresh", "--config", str(config), "--store", "memory") as served:
        asyncio.run(scenario(served))
        assert "Traceback" not in served.log()


def num_held(client):
    """Requests that wait in any pool."""
    lines = client.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("rampmeter_requests_held{"))
