"""CPU time of one decision of the engine: decided, logged, durably committed, answered. No HTTP.

The fleet says what `fleet.py` words, 32 and 256 requests in flight, each of another job. All threads of this process
count (SQLite writes in one of its own); the Redis server's process does not. Heartbeats are worded before the clock
starts, with the body that a route hands in, and so is everybody heard once: the first word of a job after a start has
its plan looked at anew. The entry is that of the number in flight that costs more.
"""

import asyncio
import gc
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvloop

from benchmarks.fleet import BOOT_ID, POOL, Beating, Fleet, FleetClock, Speaker
from benchmarks.summary import Result, summary
from rampmeter_coordinator.engine import Engine
from rampmeter_coordinator.store.memory import MemoryStore
from rampmeter_coordinator.store.protocol import Store
from rampmeter_coordinator.store.redis import RedisStore
from rampmeter_coordinator.store.sqlite import SqliteStore
from support.redis_server import redis_server

SIZES = (100, 10_000, 100_000)
STORES = ("memory", "sqlite", "redis")
IN_FLIGHT = (32, 256)
NUM_RUNS = 5
NUM_DECISIONS = 10_000
"""Of one run."""

HEARD_ONCE = 1.3
"""So many decisions for each job, and all have been heard: one in ten is of the few that save."""


def measure(directory: Path) -> dict[str, Result]:
    """CPU microseconds per decision for each store and number of jobs, and how much the number of jobs matters."""
    results: dict[str, Result] = {}
    medians: dict[tuple[str, int], float] = {}
    for num_jobs in SIZES:
        fleet = Fleet(num_jobs)
        for kind in STORES:
            runs = {count: uvloop.run(one_store(kind, fleet, count, directory)) for count in IN_FLIGHT}
            slower = max(runs, key=lambda count: statistics.median(runs[count]))
            name = f"engine.cpu_us_per_decision.{kind}.{num_jobs}"
            results[name] = summary(runs[slower], "us", in_flight=slower)
            medians[kind, num_jobs] = statistics.median(runs[slower])
    for kind in STORES:
        ratios = [medians[kind, SIZES[-1]] / medians[kind, SIZES[0]]]
        results[f"engine.size_ratio.{kind}"] = summary(ratios)
    return results


async def one_store(kind: str, fleet: Fleet, num_in_flight: int, directory: Path) -> list[float]:
    """CPU microseconds per decision in some runs over a fresh store of that kind that holds the fleet."""
    async with open_store(kind, directory) as store:
        await fleet.keep_in(store)
        engine = await Engine.open((POOL,), store, FleetClock(fleet.now_s), boot_id=BOOT_ID)
        speakers = fleet.speakers(num_in_flight)
        await one_run(engine, speakers, int(HEARD_ONCE * fleet.num_jobs))
        await one_run(engine, speakers)
        runs = [await one_run(engine, speakers) for _ in range(NUM_RUNS)]
        await engine.close()
        return runs


async def one_run(engine: Engine, speakers: list[Speaker], num_decisions: int = NUM_DECISIONS) -> float:
    """CPU microseconds per decision."""
    num_said = num_heard = 0

    async def speak(speaker: Speaker) -> None:
        nonlocal num_said, num_heard
        while num_said < num_decisions:
            num_said += 1
            speaker.heard(await engine.submit(POOL.name, *speaker.next()))
            num_heard += 1

    for speaker in speakers:
        if isinstance(speaker, Beating):
            speaker.word(2 * num_decisions // len(speakers))
    gc.collect()
    start_s = time.process_time()
    await asyncio.gather(*map(speak, speakers))
    return (time.process_time() - start_s) / num_heard * 1e6


@asynccontextmanager
async def open_store(kind: str, directory: Path) -> AsyncIterator[Store]:
    """An empty store of that kind."""
    with tempfile.TemporaryDirectory(dir=directory) as place:
        if kind == "memory":
            yield MemoryStore()
        elif kind == "sqlite":
            yield await SqliteStore.open(Path(place))
        else:
            with redis_server(Path(place)) as url:
                yield await RedisStore.open(url)
