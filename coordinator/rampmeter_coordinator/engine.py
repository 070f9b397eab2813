"""All pools of one coordinator: start, route requests to their pool, say whether it is ready, drain.

The engine is the only way to a ledger, and the only one that holds the store; handlers get answers and frozen views.
"""

import asyncio
import difflib
import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rampmeter.core.clock import Clock
from rampmeter.core.messages import RefusalReason, Request
from rampmeter_coordinator.errors import Refused, StoreUnavailable
from rampmeter_coordinator.model.commands import Refusal
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.model.views import JobView, LeaseView, PoolView, TimelineRow, Totals
from rampmeter_coordinator.opening import Known, OffsetOf, OpenPool, no_offset, open_pool
from rampmeter_coordinator.runner import MAX_INBOX, Counters, PoolRunner
from rampmeter_coordinator.store.protocol import Position, Store
from rampmeter_coordinator.waiters import Waiting

_DRAIN_S = 4.0
_PROBE_S = 2.0
_NUM_NAMED = 5
_NUM_COMPARED = 200
_COMPARED_CHARS = 100

log = logging.getLogger(__name__)


class Engine:
    """Use `open`."""

    def __init__(self, runners: Mapping[str, PoolRunner], store: Store, clock: Clock) -> None:
        self._runners = runners
        self._store = store
        self._clock = clock

    @classmethod
    async def open(
        cls,
        pools: Sequence[PoolConfig],
        store: Store,
        clock: Clock,
        *,
        boot_id: str,
        fresh: bool = False,
        known: Mapping[str, Known] = MappingProxyType({}),
        offset_of: OffsetOf = no_offset,
        max_inbox: int = MAX_INBOX,
    ) -> "Engine":
        """Load and claim every pool, then serve. Raises StoreUnavailable or Fenced."""

        async def reopen(lost: OpenPool) -> OpenPool:
            kept = Known(position=lost.head.position, ours=True)
            return await open_pool(lost.config, store, clock, boot_id=boot_id, known=kept)

        opened = [
            await open_pool(
                config,
                store,
                clock,
                boot_id=boot_id,
                fresh=fresh,
                known=known.get(config.name),
                offset_of=offset_of,
            )
            for config in pools
        ]
        runners = {
            pool.config.name: PoolRunner(pool, store, clock, reopen=reopen, max_inbox=max_inbox)
            for pool in opened
        }
        return cls(runners, store, clock)

    @property
    def pools(self) -> tuple[str, ...]:
        """Names of all pools."""
        return tuple(self._runners)

    @property
    def fenced(self) -> bool:
        """Another coordinator has taken at least one of the pools."""
        return any(runner.fenced for runner in self._runners.values())

    def positions(self) -> dict[str, Position]:
        """How far each pool has come, as the store has confirmed."""
        return {pool: runner.opened.head.position for pool, runner in self._runners.items()}

    def now_s(self) -> float:
        """The clock of every age in the views."""
        return self._clock.now()

    def submit(self, pool: str, request: Request, body: bytes | bytearray = b"") -> Waiting:
        """The answer to come: await it, or cancel it when the client has gone. Raises Refused at once or later.

        `body`: what the request was decoded from, if it was.
        """
        return self._runner(pool).submit(request, body)

    def pool_view(self, pool: str) -> PoolView:
        """One pool in figures. This and the views below raise Refused for an unknown pool."""
        return self._runner(pool).opened.ledger.pool_view(self._clock.now())

    def job_views(self, pool: str) -> list[JobView]:
        """Every job of a pool."""
        return self._runner(pool).opened.ledger.job_views(self._clock.now())

    def lease_views(self, pool: str) -> list[LeaseView]:
        """Every live lease of a pool."""
        return self._runner(pool).opened.ledger.lease_views(self._clock.now())

    def timeline(self, pool: str) -> tuple[TimelineRow, ...]:
        """The recent history of rates."""
        return self._runner(pool).opened.ledger.timeline()

    def totals(self, pool: str) -> Totals:
        """Counters of a pool."""
        return self._runner(pool).opened.ledger.totals

    def counters(self, pool: str) -> Counters:
        """What the pool's runner counted."""
        return self._runner(pool).counters

    async def not_ready_because(self) -> Refusal | None:
        """Why no requests should come here now, tried with a real commit of each pool; None if they should."""
        try:
            async with asyncio.timeout(_PROBE_S):
                await asyncio.gather(*(runner.probe() for runner in self._runners.values()))
        except Refused as refused:
            return refused.refusal
        except StoreUnavailable:
            detail = "the store keeps no commits at the moment"
        except TimeoutError:
            detail = f"the store did not answer within {_PROBE_S:g} s"
        else:
            return None
        return Refusal(reason=RefusalReason.STORE_UNAVAILABLE, status=503, detail=detail)

    async def drain(self) -> None:
        """Take no more requests, answer everybody, keep what was decided. Takes a few seconds at most."""
        await asyncio.gather(*(runner.close(_DRAIN_S) for runner in self._runners.values()))

    def depose(self) -> None:
        """Stop at once, because another coordinator may lead: everybody who waits is refused."""
        for runner in self._runners.values():
            runner.depose()

    async def close(self) -> None:
        """Drain and let go of the store."""
        await self.drain()
        await self._store.close()

    def _runner(self, pool: str) -> PoolRunner:
        runner = self._runners.get(pool)
        if runner is None:
            raise Refused(
                Refusal(
                    reason=RefusalReason.UNKNOWN_POOL,
                    status=404,
                    detail=f"this coordinator has no such pool; {self._nearest(pool)}",
                )
            )
        return runner

    def _nearest(self, pool: str) -> str:
        """Names of pools for whoever has mistyped one: all may see them. What was asked for is not repeated."""
        names = sorted(self._runners)[:_NUM_COMPARED]
        near = difflib.get_close_matches(pool[:_COMPARED_CHARS], names, n=_NUM_NAMED, cutoff=0.0)
        what = "it has" if len(near) == len(self._runners) else "GET /v1/pools lists those it has, among them"
        return f"{what} {', '.join(near)}"
