"""From what a store kept to a ledger that may serve: epoch, continuity, grace. Claims the pool before it serves.

Grace is skipped only if nothing can be out there that the ledger does not know: times of this clock or of one whose
offset is known, and a store that lost nothing; or an operator who says that these pools never served anybody. A grace
that was still running starts anew.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.metadata import version
from uuid import uuid4

import msgspec

from rampmeter.core.clock import Clock, wall_time
from rampmeter.core.units import format_rate
from rampmeter_coordinator.model.commands import Changes
from rampmeter_coordinator.model.ledger import Ledger
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.model.shifting import ClockOffset, shift_meta, shift_records
from rampmeter_coordinator.model.state import fence_epoch_of
from rampmeter_coordinator.store.protocol import Batch, Head, LogRow, Position, Store, StoredPool

log = logging.getLogger(__name__)

Reopen = Callable[["OpenPool"], Awaitable["OpenPool"]]
"""Loads a pool again whose store has lost commits."""

_SAME_CLOCK = ClockOffset(earlier_s=0.0, later_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """All that a ledger begins with, beside its epoch, records and meta: kept with the log, so that it can be replayed.

    `release` is the one that decided; another one may decide otherwise.
    """

    config: PoolConfig
    seed: int
    grace_until_s: float
    release: str

    def ledger(self, epoch: int, records: Mapping[str, bytes], meta: bytes) -> Ledger:
        """The ledger that begins so. Without meta it is one without memory."""
        if not meta:
            return Ledger.new(self.config, epoch=epoch, seed=self.seed, grace_until_s=self.grace_until_s)
        return Ledger.load(
            self.config,
            epoch=epoch,
            seed=self.seed,
            records=records,
            meta=meta,
            grace_until_s=self.grace_until_s,
        )

    def to_bytes(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def from_bytes(cls, raw: bytes) -> "Beginning":
        """What `to_bytes` wrote. Unknown keys are dropped, missing ones have their defaults."""
        return msgspec.json.decode(raw, type=cls)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """How far a pool had come when this process last knew. `ours`: it made that commit itself, and was told nothing
    after it."""

    position: Position
    ours: bool


OffsetOf = Callable[[str], ClockOffset | None]
"""How far the clock of that boot id is from the own one, if that is known."""


def no_offset(boot_id: str) -> None:  # noqa: ARG001
    """No other clock is known."""
    return


async def open_pool(
    config: PoolConfig,
    store: Store,
    clock: Clock,
    *,
    boot_id: str,
    fresh: bool = False,
    known: Known | None = None,
    offset_of: OffsetOf = no_offset,
) -> OpenPool:
    """Load the pool, or begin it, and claim it with a first commit under a new epoch.

    `known` is how far this process knows the pool to have come: a store that is behind it has lost commits.
    Raises StoreUnavailable, or Fenced if another coordinator starts at the same moment.
    """
    stored = await store.load(config.name)
    now_s = clock.now()
    offset = _offset(stored, boot_id, offset_of)
    grace_until_s = _grace_until_s(config, stored, now_s, offset=offset, fresh=fresh, known=known)
    moved = stored is not None and offset is not None and offset != _SAME_CLOCK and grace_until_s == 0.0
    if moved:
        assert stored is not None
        assert offset is not None
        meta = shift_meta(stored.meta, offset)
        stored = replace(stored, records=shift_records(stored.records, offset), meta=meta)
    epoch = _next_epoch(stored, known)
    beginning = Beginning(
        config=config, seed=epoch, grace_until_s=grace_until_s, release=version("rampmeter")
    )
    ledger = beginning.ledger(epoch, stored.records if stored else {}, stored.meta if stored else b"")
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
    changes = ledger.take_changes()
    if (
        moved and stored is not None
    ):  # the store must not keep times of one clock under the boot id of another
        changes = replace(changes, records={**stored.records, **changes.records})
    claim = replace(opened.batch(changes, (), now_s), opening=beginning.to_bytes())
    await store.commit(claim)
    left_s = max(0.0, grace_until_s - now_s)
    log.info("pool %s: %s, epoch %d, %s", config.name, _capacity_text(config), epoch, _grace_text(left_s))
    return opened.after(claim)


def _next_epoch(stored: StoredPool | None, known: Known | None) -> int:
    """Above all that the store, a fence or this process has seen; the wall clock where that is above them anyway."""
    epochs = [stored.head.epoch, fence_epoch_of(stored.meta)] if stored else []
    epochs += [known.position.epoch] if known else []
    return max(_wall_ms(), *(epoch + 1 for epoch in epochs)) if epochs else _wall_ms()


def _capacity_text(config: PoolConfig) -> str:
    return f"{config.utilisation:.0%} of {format_rate(config.capacity_bytes_per_s)} may be granted"


def _grace_text(left_s: float) -> str:
    if left_s == 0.0:
        return "serves at once"
    return f"grace for {left_s:.0f} s: until then only jobs that hold a lease are served"


def _offset(stored: StoredPool | None, boot_id: str, offset_of: OffsetOf) -> ClockOffset | None:
    """From the clock of the stored times to the own one; None if nobody knows it."""
    if stored is None:
        return None
    if stored.head.boot_id == boot_id != "unknown":
        return _SAME_CLOCK
    return offset_of(stored.head.boot_id)


def _grace_until_s(
    config: PoolConfig,
    stored: StoredPool | None,
    now_s: float,
    *,
    offset: ClockOffset | None,
    fresh: bool,
    known: Known | None,
) -> float:
    if stored is None:
        return 0.0 if fresh and known is None else now_s + config.grace_s
    head = stored.head
    went_on = offset is not None and head.now_s + offset.earlier_s <= now_s
    # A grace that was still running starts anew: leases re-created in it may outlive its old end.
    settled = head.grace_until_s == 0.0 or (
        offset is not None and head.grace_until_s + offset.later_s <= now_s
    )
    if went_on and settled and _nothing_lost(stored, known):
        return 0.0
    return now_s + max(config.grace_s, head.grace_s) + stored.overlap_s


def _nothing_lost(stored: StoredPool, known: Known | None) -> bool:
    """Every commit that was ever confirmed is in the store."""
    position = stored.head.position
    if known is None:
        return stored.contiguous
    if position.behind(known.position):
        return False
    # Nobody wrote since this process did, so nobody was told of a commit that it does not know. Where one server may
    # take another's place, a leader in between may have written to the one that is gone.
    own = known.ours and position.writer == known.position.writer and stored.overlap_s == 0.0
    return stored.contiguous or own


def _wall_ms() -> int:
    return int(datetime.fromisoformat(wall_time()).timestamp() * 1000)
