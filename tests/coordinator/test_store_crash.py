"""kill -9 in the middle of commits: what comes back is exactly one commit, and never less than what was confirmed."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rampmeter_coordinator.store.redis import RedisStore
from rampmeter_coordinator.store.sqlite import SqliteStore
from support.commit_loop import NUM_RECORDS
from support.redis_server import redis_server

KILLS = 12
LOOP = Path(__file__).parents[1] / "support" / "commit_loop.py"


def killed_run(kind, where, seeded):
    """Run the commit loop, kill it after some confirmed commits; the last confirmed number."""
    paths = [str(LOOP.parents[1]), os.environ.get("PYTHONPATH", "")]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths).rstrip(os.pathsep)}
    process = subprocess.Popen([sys.executable, str(LOOP), kind, where], stdout=subprocess.PIPE, env=environ)
    confirmed = [process.stdout.readline() for _ in range(seeded.randint(1, 50))]
    time.sleep(0.005 * seeded.random())  # so that the kill meets any moment of a commit
    process.send_signal(signal.SIGKILL)
    confirmed += process.stdout.readlines()
    process.wait()
    complete = [line for line in confirmed if line.endswith(b"\n")]
    return int(complete[-1])


async def what_is_kept(store):
    """The stored pool and the numbers in its log."""
    stored = await store.load("lustre")
    rows = await store.log("lustre")
    await store.close()
    return stored, [json.loads(row.replies)[0]["seq"] for row in rows]


def check(stored, logged, confirmed):
    """One whole commit: the last confirmed one or the one after it."""
    number = stored.head.number
    assert confirmed <= number <= confirmed + 1
    assert stored.records == {f"job{index}": b"%d" % number for index in range(NUM_RECORDS)}
    assert stored.meta == b"%d" % number
    assert logged == list(range(1, number + 1))[-len(logged) :]


def test_sqlite_after_kills(tmp_path):
    """The SQLite store comes back consistent after each kill, and goes on from there."""
    seeded = random.Random(7)
    for _ in range(KILLS):
        confirmed = killed_run("sqlite", str(tmp_path), seeded)

        async def reopen():
            return await what_is_kept(await SqliteStore.open(tmp_path))

        check(*asyncio.run(reopen()), confirmed)


@pytest.mark.debian("redis-server")
def test_redis_after_kills_of_the_client(tmp_path):
    """A coordinator that dies in the middle of a commit leaves a whole one in Redis."""
    seeded = random.Random(8)
    with redis_server(tmp_path) as url:
        for _ in range(KILLS // 2):
            confirmed = killed_run("redis", url, seeded)

            async def reopen():
                return await what_is_kept(await RedisStore.open(url))

            check(*asyncio.run(reopen()), confirmed)


@pytest.mark.debian("redis-server")
def test_redis_after_a_kill_of_the_server_with_an_append_only_file(tmp_path):
    """A killed server with appendfsync always comes back with every confirmed commit, whole."""
    options = ("--appendonly", "yes", "--appendfsync", "always")
    with redis_server(tmp_path, *options) as url:
        confirmed = killed_run("redis", url, random.Random(9))
    with redis_server(tmp_path, *options) as url:

        async def reopen():
            return await what_is_kept(await RedisStore.open(url))

        check(*asyncio.run(reopen()), confirmed)
