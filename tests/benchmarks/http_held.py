"""What 5,000 held slot requests take of the serving process, and how long it takes to wake one of them.

Each waits on a connection of its own, fifty in each of a hundred pools behind a writer that has the whole budget.
Memory is the growth of RSS from known jobs without a connection to all of them waiting, by request. A writer then
releases its lease: the time until the grant of the next one is here.
"""

import asyncio
import resource
import tempfile
import time
from pathlib import Path

from benchmarks.fleet import uid_of
from benchmarks.http_cycle import Client
from benchmarks.summary import Result, summary
from rampmeter.core.messages import Grant, Heartbeat, Register, Release, SlotRequest
from support.coordinator import Coordinator, coordinator

NUM_POOLS = 100
NUM_EACH = 50
POOL = """
[pools.pool{}]
capacity = "1GB/s"
ttl = "600s"
first_ttl = "600s"
"""
"""The writers' leases outlive everything here without a renewal."""

WRITERS_BYTES = 14 * 10**9
"""Seventeen seconds' worth: nobody is prepared for its turn yet, and nobody is told to come back later."""

_KEEP_FREE = 200
_LIMIT_S = 20.0
"""Slot requests are held for 25 s."""


def measure(directory: Path) -> dict[str, Result]:
    """Bytes of RSS of a held request, and milliseconds to wake one."""
    _raise_file_limit()
    with tempfile.TemporaryDirectory(dir=directory) as name:
        place = Path(name)
        config = place / "config.toml"
        config.write_text("".join(POOL.format(number) for number in range(NUM_POOLS)))
        with coordinator(place, "--fresh", "--config", str(config), "--store", "memory") as served:
            taken, woken_ms = asyncio.run(hold(served))
    return {
        "http.held_bytes": summary([taken], "bytes", num_held=NUM_POOLS * NUM_EACH),
        "http.wake_ms": summary(woken_ms, "ms", num_held=NUM_POOLS * NUM_EACH),
    }


async def hold(served: Coordinator) -> tuple[float, list[float]]:
    """Bytes by held request; milliseconds to wake the next one in some pools."""
    writers, waiters = [], []
    for number in range(NUM_POOLS * (NUM_EACH + 1)):
        client = Client(uid_of(number), f"pool{number % NUM_POOLS}")
        (writers if number < NUM_POOLS else waiters).append(client)
    for client in waiters:
        await known(served, client)
        client.close()
    for client in writers:
        await known(served, client)
        long = {"num_bytes": WRITERS_BYTES, "max_bytes_per_s": 10**12}
        assert isinstance(await client.tell(client.word(SlotRequest, **long)), Grant)
    before = rss_bytes(served)
    start_s = time.monotonic()
    held = []
    for first in range(0, len(waiters), 100):
        some = waiters[first : first + 100]
        await asyncio.gather(*(back_in_contact(served, client) for client in some))
        held += [asyncio.ensure_future(c.tell(c.word(SlotRequest, num_bytes=10**6))) for c in some]
    await asyncio.sleep(1.0)  # the last ones are on their way
    taken = (rss_bytes(served) - before) / len(held)
    answered = [answer.result() for answer in held if answer.done()]
    assert not answered, f"{len(answered)} were not held: {answered[0]}"
    assert time.monotonic() - start_s < _LIMIT_S, "this machine is too slow to have all of them wait at once"
    woken_ms = [await wake(writer, held[number::NUM_POOLS]) for number, writer in enumerate(writers[:20])]
    for answer in held:
        answer.cancel()
    return taken, woken_ms


async def known(served: Coordinator, client: Client) -> None:
    """Let the job be known, with contact."""
    await client.reconnect(served)
    await client.tell(client.word(Register))
    await client.tell(client.word(Heartbeat, step=1))


async def back_in_contact(served: Coordinator, client: Client) -> None:
    """A new connection of a known job; without fresh contact its slot request would not be held."""
    await client.reconnect(served)
    await client.tell(client.word(Heartbeat, step=2))


async def wake(writer: Client, held: list[asyncio.Future[object]]) -> float:
    """Milliseconds from a release to the first grant."""
    start_s = time.monotonic()
    await asyncio.gather(
        writer.tell(writer.word(Release)), asyncio.wait(held, return_when=asyncio.FIRST_COMPLETED)
    )
    return (time.monotonic() - start_s) * 1e3


def rss_bytes(served: Coordinator) -> int:
    """What the process has in memory."""
    status = Path(f"/proc/{served.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def _raise_file_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    wanted = NUM_POOLS * (NUM_EACH + 1) + _KEEP_FREE
    assert hard == resource.RLIM_INFINITY or hard > wanted, f"needs {wanted} open files, the limit is {hard}"
