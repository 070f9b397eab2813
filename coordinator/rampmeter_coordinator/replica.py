"""One process of a deployment: it leads and has an engine, or it stands by and knows who leads.

Opens the engine when the lease is won, closes it the moment the lease is over or another coordinator has taken a pool,
and hands the lease over when it stops. A deposed engine answers nobody: what it had not been told to be kept stays
unsaid. Standing by, it remembers how far the pools have come, so that a store that went back is noticed.
"""

import asyncio
import logging
from collections.abc import Sequence

from rampmeter.core.clock import Clock
from rampmeter.core.messages import RefusalReason
from rampmeter_coordinator.engine import Engine
from rampmeter_coordinator.errors import Fenced, LostCommits, Refused, StoreUnavailable
from rampmeter_coordinator.leadership import Leadership, OtherLeader
from rampmeter_coordinator.model.commands import Refusal
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.opening import Known
from rampmeter_coordinator.store.protocol import Store

_LOOK_S = 1.0
_RETRY_S = 1

log = logging.getLogger(__name__)


class Replica:
    """Use `start`, then `engine` or `leader`, then `drain` and `close`."""

    def __init__(
        self,
        pools: Sequence[PoolConfig],
        store: Store,
        clock: Clock,
        *,
        url: str,
        boot_id: str,
        fresh: bool,
    ) -> None:
        self.leadership = Leadership(store, clock, url=url, boot_id=boot_id)
        self.stopping = asyncio.Event()
        """Set when this process stops: whatever waits here for another process is answered."""
        self._pools = pools
        self._store = store
        self._clock = clock
        self._boot_id = boot_id
        self._fresh = fresh
        self._engine: Engine | None = None
        self._opening: asyncio.Task[None] | None = None
        self._loop: asyncio.Task[None] | None = None
        self._known: dict[str, Known] = {}
        self._looked_s = -_LOOK_S

    @property
    def engine(self) -> Engine | None:
        """The engine, while this process leads; a stopping one still says that it stops."""
        return self._engine if self.leadership.leads or self.stopping.is_set() else None

    @property
    def leader(self) -> OtherLeader | None:
        """Who leads instead."""
        return self.leadership.other

    async def start(self) -> None:
        """Lead if nobody does. Raises StoreUnavailable, Fenced or ConfigError where the process cannot serve."""
        if not await self.leadership.poll():
            raise StoreUnavailable(self.leadership.trouble)
        if self.leadership.leads:
            await self._open(fresh=self._fresh)
        elif self.leader is not None:
            log.info("standing by: %s leads", self.leader.url or "a coordinator without advertise_url")
        self._loop = asyncio.get_running_loop().create_task(self._run(), name="leadership")

    async def drain(self) -> None:
        """Take no more requests, answer everybody, then let another lead. Takes a few seconds at most."""
        if self.stopping.is_set():
            return
        self.stopping.set()
        if self._engine is not None:
            await self._engine.drain()  # the lease is renewed meanwhile
        for task in (self._loop, self._opening):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
        await self.leadership.resign()

    async def close(self) -> None:
        """Drain and let go of the store."""
        await self.drain()
        await self._store.close()

    async def not_ready_because(self) -> Refusal | None:
        """Why no requests should come here now; None for a leader that can commit, and a standby that knows one."""
        engine = self.engine
        if engine is not None:
            return await engine.not_ready_because()
        if self.stopping.is_set() or self.leader is None:
            return self.no_engine().refusal
        return None

    def no_engine(self) -> Refused:
        """The refusal where there is neither an engine nor anybody to forward to."""
        if self.stopping.is_set():
            reason, detail = RefusalReason.DRAINING, "this coordinator is shutting down"
        else:
            reason, detail = RefusalReason.NO_LEADER, "no coordinator leads at the moment"
        return Refused(Refusal(reason=reason, status=503, detail=detail), retry_after_s=_RETRY_S)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self.leadership.wait_s)
            try:
                await self._turn()
            except Exception:
                log.exception("unexpected error while finding out who leads")

    async def _turn(self) -> None:
        await self.leadership.poll()
        if self.stopping.is_set():
            return
        if self._engine is not None and self._engine.fenced:
            await self._step_down("another coordinator has taken a pool")
            await self.leadership.resign()
        elif not self.leadership.leads:
            await self._step_down("the lease is over")
            await self._look()
        elif self._engine is None and self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._take_over(), name="take-over")

    async def _take_over(self) -> None:
        log.warning("taking over: no other coordinator leads")
        try:
            await self._open(fresh=False)
        except (StoreUnavailable, Fenced, LostCommits) as error:
            log.error("cannot take over: %s", error)  # noqa: TRY400
            await self.leadership.resign()
        except Exception:
            log.exception("cannot take over")
            await self.leadership.resign()
        finally:
            self._opening = None

    async def _open(self, *, fresh: bool) -> None:
        self._engine = await Engine.open(
            self._pools,
            self._store,
            self._clock,
            boot_id=self._boot_id,
            fresh=fresh,
            known=self._known,
            offset_of=self.leadership.samples.offset_of,
        )
        self.leadership.tell()

    async def _step_down(self, why: str) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait({self._opening})
        engine, self._engine = self._engine, None
        if engine is not None:
            log.error("this coordinator leads no more: %s", why)
            self._known |= {
                pool: Known(position=position, ours=True) for pool, position in engine.positions().items()
            }
            engine.depose()

    async def _look(self) -> None:
        """Remember how far each pool has come."""
        if self._clock.now() - self._looked_s < _LOOK_S:
            return
        self._looked_s = self._clock.now()
        try:
            for pool in self._pools:
                found = await self._store.newest(pool.name)
                known = self._known.get(pool.name)
                if found is not None and (known is None or known.position.behind(found)):
                    self._known[pool.name] = Known(position=found, ours=False)
        except StoreUnavailable:
            return
