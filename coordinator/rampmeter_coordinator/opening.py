"""From what a store kept to a ledger that may serve: epoch, continuity, grace. Claims the pool before it serves.

Grace is skipped only if nothing can be out there that the ledger does not know: same boot, a store that lost nothing,
or an operator who says that these pools never served anybody. A grace that was still running starts anew.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import uuid4

from rampmeter.core.clock import Clock, wall_time
from rampmeter.core.units import format_rate
from rampmeter_coordinator.model.commands import Changes
from rampmeter_coordinator.model.ledger import Ledger
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.store.protocol import Batch, Head, LogRow, Store, StoredPool

log = logging.getLogger(__name__)

Reopen = Callable[["OpenPool"], Awaitable["OpenPool"]]
"""Loads a pool again whose store has lost commits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPool:
    """A ledger and the head of its newest commit."""

    config: PoolConfig
    ledger: Ledger
    head: Head
    meta: bytes

    def batch(self, changes: Changes, rows: tuple[LogRow, ...], now_s: float) -> Batch:
        """The next commit."""
        head = replace(self.head, number=self.head.number + 1, now_s=now_s)
        return Batch(pool=self.config.name, head=head, changes=changes, log=rows)

    def after(self, batch: Batch) -> "OpenPool":
        """The same pool when `batch` has been kept."""
        return replace(self, head=batch.head, meta=batch.changes.meta)


async def open_pool(
    config: PoolConfig,
    store: Store,
    clock: Clock,
    *,
    boot_id: str,
    fresh: bool = False,
    lost: OpenPool | None = None,
) -> OpenPool:
    """Load the pool, or begin it, and claim it with a first commit under a new epoch.

    `lost` is the pool as this process had it, if the store has gone back behind it.
    Raises StoreUnavailable, or Fenced if another coordinator starts at the same moment.
    """
    stored = await store.load(config.name)
    now_s = clock.now()
    if lost is not None:
        grace_until_s = now_s + config.grace_s
    else:
        grace_until_s = _grace_until_s(config, stored, now_s, boot_id=boot_id, fresh=fresh)
    known = [stored.head.epoch] if stored else []
    known += [lost.head.epoch] if lost else []
    epoch = max(_wall_ms(), *(epoch + 1 for epoch in known)) if known else _wall_ms()
    ledger = _ledger(config, stored, epoch, grace_until_s)
    head = Head(
        number=stored.head.number if stored else 0,
        epoch=epoch,
        writer=uuid4().hex,
        boot_id=boot_id,
        now_s=now_s,
        grace_s=config.grace_s,
        grace_until_s=grace_until_s,
    )
    opened = OpenPool(config=config, ledger=ledger, head=head, meta=b"")
    claim = opened.batch(ledger.take_changes(), (), now_s)
    await store.commit(claim)
    left_s = max(0.0, grace_until_s - now_s)
    log.info("pool %s: %s, epoch %d, %s", config.name, _capacity_text(config), epoch, _grace_text(left_s))
    return opened.after(claim)


def _capacity_text(config: PoolConfig) -> str:
    return f"{config.utilisation:.0%} of {format_rate(config.capacity_bytes_per_s)} may be granted"


def _grace_text(left_s: float) -> str:
    if left_s == 0.0:
        return "serves at once"
    return f"grace for {left_s:.0f} s: until then only jobs that hold a lease are served"


def _ledger(config: PoolConfig, stored: StoredPool | None, epoch: int, grace_until_s: float) -> Ledger:
    if stored is None:
        return Ledger.new(config, epoch=epoch, seed=epoch, grace_until_s=grace_until_s)
    return Ledger.load(
        config,
        epoch=epoch,
        seed=epoch,
        records=stored.records,
        meta=stored.meta,
        grace_until_s=grace_until_s,
    )


def _grace_until_s(
    config: PoolConfig, stored: StoredPool | None, now_s: float, *, boot_id: str, fresh: bool
) -> float:
    if stored is None:
        return 0.0 if fresh else now_s + config.grace_s
    same_boot = stored.head.boot_id == boot_id != "unknown" and stored.head.now_s <= now_s
    # A grace that was still running starts anew: leases re-created in it may outlive its old end.
    if same_boot and stored.contiguous and stored.head.grace_until_s <= now_s:
        return 0.0
    return now_s + max(config.grace_s, stored.head.grace_s)


def _wall_ms() -> int:
    return int(datetime.fromisoformat(wall_time()).timestamp() * 1000)
