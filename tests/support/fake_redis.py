"""fakeredis with the one command that it lacks and the store needs."""

import fakeredis


class FakeRedis(fakeredis.FakeAsyncRedis):
    """`INFO` as a server that has run all the time and evicts nothing."""

    async def info(self, section=None, *args, **kwargs):
        return {"maxmemory_policy": "noeviction", "run_id": "fake"}
