"""Invariants that need a history of their own: random ones meet it too rarely, or cannot judge it."""

from dataclasses import replace
from typing import Any

import pytest

from invariants.faults import CALM
from invariants.leader import Leader
from invariants.world import POOL, World
from rampmeter_coordinator.model.commands import Command, Reply
from rampmeter_coordinator.model.ledger import Ledger
from support.desk import POOL as FULL
from support.desk import Desk

T = 1000.0


def test_a_newer_request_says_nothing_of_an_answer_that_was_lost() -> None:
    """Superseded by two requests, the lost lowering still frees nothing before the older lease has expired."""
    desk = Desk()
    a = desk.writer(1, T)
    a.renew(T + 1, held=1000)
    desk.restart(config=replace(FULL, capacity_bytes_per_s=500))
    a.renew(T + 2, held=1000, lost=True)
    a.renew(T + 3, held=1000, lost=True)
    assert desk.counted(T + 3) == 1000
    desk.tick(T + 32)
    assert desk.counted(T + 32) <= 500


def test_what_became_of_another_boots_times_outlives_the_next_restart() -> None:
    """A silent job is counted after a reboot, and after one more restart that trusts what was kept."""
    desk = Desk()
    desk.known(1, T)
    rebooted_s = 50.0  # the clock of a machine begins anew
    desk.restart(grace_until_s=rebooted_s + 31.0)
    desk.tick(rebooted_s)
    desk.tick(rebooted_s + 32.0)
    silent = desk.counted(rebooted_s + 32.0)
    assert silent > 0
    desk.restart(epoch=3)
    desk.tick(rebooted_s + 33.0)
    assert desk.counted(rebooted_s + 33.0) == silent


def test_a_shrink_takes_one_round_trip_where_everybody_is_reachable() -> None:
    """Half of the capacity is gone: a second after the new leader serves, half of the rates are."""
    world = World(3, CALM)
    world.run(300.0)
    world.reconfigure(replace(POOL, capacity_bytes_per_s=400))
    world.crash(0.3)
    world.run(0.3 + 10.0)  # the clients' own time-out for a renewal that nobody will answer
    world.run(2.0)
    used = sum(process.usable()[0] for process in world.processes)
    assert world.violations == []
    assert 0 < used <= 320


@pytest.mark.parametrize(
    "pool",
    [
        replace(POOL, max_writers=1),
        replace(POOL, ttl_s=4.0, first_ttl_s=2.0),
        replace(POOL, capacity_bytes_per_s=1),
        replace(POOL, utilisation=1.0, max_tenant_bytes_per_s=1),
    ],
    ids=["one writer", "leases shorter than a held renewal", "one byte per second", "a tenant of one byte"],
)
@pytest.mark.parametrize("num_jobs", [1, 8])
def test_degenerate_pools_shrink_to_nothing_and_back(pool: Any, num_jobs: int) -> None:
    """No exception, nothing over: capacity 0 for two minutes, then as before."""
    world = World(5, replace(CALM, delay_s=1.0), num_jobs=num_jobs, config=pool)
    world.run(200.0)
    for capacity in (0, pool.capacity_bytes_per_s):
        world.reconfigure(replace(pool, capacity_bytes_per_s=capacity))
        world.crash(0.3)
        world.run(120.0)
    assert world.violations == []


def test_the_same_commands_lead_to_the_same_replies_and_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger decides by its commands and their times alone."""
    heard: list[tuple[Command, float, tuple[Reply, ...]]] = []
    kept: dict[str, bytes | None] = {}
    apply = Ledger.apply

    def listen(self: Ledger, command: Command, now_s: float) -> tuple[Reply, ...]:
        replies = apply(self, command, now_s)
        heard.append((command, now_s, replies))
        return replies

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "apply", listen)
        world = World(11, replace(CALM, loss=0.1, duplicates=0.2, delay_s=2.0, zombies=1 / 200))
        world.run(900.0)
    again = Ledger.new(POOL, epoch=1, seed=1, grace_until_s=0.0)
    for command, now_s, replies in heard:
        assert again.apply(command, now_s) == replies
        kept.update(again.take_changes().records)
    assert len(heard) > 1000
    assert {uid: raw for uid, raw in kept.items() if raw is not None} == world.store.records
    assert isinstance(world.leader, Leader)
