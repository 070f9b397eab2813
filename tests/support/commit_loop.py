"""Commits for ever, printing each number when it is kept: a process to be killed. Arguments: sqlite DIR | redis URL."""

import asyncio
import sys
from pathlib import Path

from rampmeter_coordinator.store.redis import RedisStore
from rampmeter_coordinator.store.sqlite import SqliteStore
from support.batches import batch, row

NUM_RECORDS = 200


async def main(kind, where):
    store = await (SqliteStore.open(Path(where)) if kind == "sqlite" else RedisStore.open(where))
    stored = await store.load("lustre")
    number = stored.head.number if stored else 0
    while True:
        number += 1
        records = {f"job{index}": b"%d" % number for index in range(NUM_RECORDS)}
        await store.commit(batch(number, records=records, meta=b"%d" % number, log=[row(number)]))
        print(number, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
