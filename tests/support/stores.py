"""A store that tests can hold up, break and empty."""

import asyncio

from rampmeter_coordinator.store.memory import MemoryStore


class TestedStore(MemoryStore):
    """Notes commits; `gate` holds them up while clear; the next ones raise `errors`, before or after landing."""

    __test__ = False

    def __init__(self):
        super().__init__()
        self.batches = []
        self.waiting = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.errors = []
        self.lands_before_error = False

    async def commit(self, batch):
        self.waiting += 1
        await self.gate.wait()
        self.waiting -= 1
        error = self.errors.pop(0) if self.errors else None
        if error is None or self.lands_before_error:
            await super().commit(batch)
        if error is not None:
            raise error
        self.batches.append(batch)

    def forget(self, pool):
        """Lose everything of a pool, as a store without a disk does."""
        self._pools.pop(pool, None)

    def number(self, pool="lustre"):
        """The newest commit that was kept."""
        return self._pools[pool].head.number
