"""A coordinator that starts again with other settings while leases live: their holders contradict nothing."""

from dataclasses import replace

import pytest

from rampmeter.core.messages import Grant, Kind
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.model.validating import BrokenInvariant
from support.desk import POOL, Desk, Talker

T = 1000.0
SHADOW = replace(POOL, enforced_share=0.0)
BEFORE_AND_AFTER = {
    "shadow jobs are enforced from now on": (SHADOW, POOL),
    "half of the shadow jobs are": (SHADOW, replace(POOL, enforced_share=0.5)),
    "enforced jobs are in shadow from now on": (POOL, SHADOW),
    "restores and saves share a budget": (POOL, replace(POOL, shared_reads=True)),
    "they share it no more": (replace(POOL, shared_reads=True), POOL),
    "less capacity": (POOL, replace(POOL, capacity_bytes_per_s=100)),
    "no more writers than one": (POOL, replace(POOL, max_writers=1)),
    "shorter leases": (replace(POOL, ttl_s=300.0), replace(POOL, ttl_s=3.0, first_ttl_s=1.0)),
}


def some_who_write(desk: Desk, now_s: float) -> list[Talker]:
    """Two saves and two restores at the budget of their lane, or beyond it in shadow."""
    holders = [desk.known(number, now_s) for number in (1, 2, 3, 4)]
    for holder in holders:
        kind = Kind.WRITE if holder.uid < f"{3:032x}" else Kind.READ
        holder.ask(now_s, ready_in_s=0.0, kind=kind, num_bytes=10**6, max_bytes_per_s=1000)
        holder.kind = kind
    return holders


def go_on(desk: Desk, holders: list[Talker], from_s: float, num_s: int) -> None:
    """All renew or ask once a second; the pool is checked at every step."""
    for now_s in (from_s + second for second in range(num_s)):
        for holder in holders:
            holder.hear()
            if isinstance(holder.last, Grant):
                held = holder.last.bytes_per_s
                holder.renew(now_s, held, kind=holder.kind)
            else:
                holder.ask(now_s, started=True, kind=holder.kind, num_bytes=10**6)
            desk.ledger.validate(now_s)


@pytest.mark.parametrize("name", BEFORE_AND_AFTER)
@pytest.mark.parametrize("forget", [False, True], ids=["remembered", "lost"])
def test_leases_of_the_life_before_break_no_invariant(name: str, forget: bool) -> None:
    """They are counted as they are, though no budget of this life would have given them; soon it holds again."""
    before, after = BEFORE_AND_AFTER[name]
    desk = Desk(before)
    holders = some_who_write(desk, T)
    go_on(desk, holders, T + 1.0, 5)
    restart(desk, after, forget=forget)
    if forget:
        for holder in holders:
            holder.register(T + 6.0)
            holder.renew(T + 6.0, 1000, kind=holder.kind)
    go_on(desk, holders, T + 7.0, 60)
    if after.enforced_share == 1.0:
        now_s = T + 67.0 + before.ttl_s
        desk.tick(now_s)
        assert desk.counted(now_s) <= after.budget_bytes_per_s


def restart(desk: Desk, config: PoolConfig, *, forget: bool) -> None:
    """With grace if the memory was lost."""
    grace_until_s = T + 6.0 + config.grace_s if forget else 0.0
    desk.restart(config=config, grace_until_s=grace_until_s, forget=forget)


def test_what_holders_told_after_lost_memory_breaks_no_invariant() -> None:
    """In a pool of a tenth of what it was: who comes back last has a lease, as told, beyond the end of the grace."""
    desk = Desk(POOL)
    holder = desk.writer(1, T, max_bytes_per_s=1000)
    restart(desk, replace(POOL, capacity_bytes_per_s=100), forget=True)
    late_s = desk.config.grace_s + T + 5.0
    holder.register(late_s)
    holder.renew(late_s, 1000, lost=True)
    for second in range(40):
        desk.tick(late_s + second)
        desk.ledger.validate(late_s + second)
    assert desk.counted(late_s + 40.0) <= 100


def test_what_came_from_before_is_no_excuse_for_ever() -> None:
    """Once the leases of the life before have ended, the budget of this life is what must hold."""
    desk = Desk(POOL)
    holder = desk.writer(1, T, max_bytes_per_s=1000)
    desk.restart(config=replace(POOL, capacity_bytes_per_s=100))
    go_on_s = T + 1.0
    desk.tick(go_on_s)
    desk.ledger.validate(go_on_s)
    holder.kind = Kind.WRITE
    go_on(desk, [holder], go_on_s, 40)
    (job,) = desk.ledger._state.live.values()
    assert job.lease is not None
    job.lease.offers[-1].bytes_per_s = 1000
    with pytest.raises(BrokenInvariant, match="write leases of 1000"):
        desk.ledger.validate(T + 41.0)
