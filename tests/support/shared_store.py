"""A store that several replicas in one process share, with a lead that ends by a clock that tests move."""

from dataclasses import replace

from rampmeter_coordinator.errors import StoreUnavailable
from rampmeter_coordinator.store.protocol import Lead
from support.stores import TestedStore


class SharedStore(TestedStore):
    """The lead is one lease on the store's clock; `down` makes everything fail."""

    __test__ = False

    def __init__(self, clock):
        super().__init__()
        self.down = False
        self.leader = None
        self._clock = clock
        self._until_s = 0.0

    async def lead(self, candidate, ttl_s):
        self._check()
        free = self.leader is None or self._clock.now() >= self._until_s
        if free or self.leader.holder == candidate.holder:
            self.leader, self._until_s = candidate, self._clock.now() + ttl_s
        return Lead(leader=self.leader, ttl_s=ttl_s)

    async def resign(self, holder):
        self._check()
        if self.leader is not None and self.leader.holder == holder:
            self.leader = None

    async def load(self, pool):
        self._check()
        stored = await super().load(pool)
        return stored and replace(stored, records=dict(stored.records))

    async def newest(self, pool):
        self._check()
        return await super().newest(pool)

    async def commit(self, batch):
        self._check()
        await super().commit(batch)

    def _check(self):
        if self.down:
            raise StoreUnavailable("down")
