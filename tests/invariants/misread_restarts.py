"""What must outlive restarts, fail-overs and lost memory, read naively: patches that a test puts in and takes out."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from invariants import world as world_module
from invariants.leader import Store
from rampmeter.core.messages import Kind
from rampmeter_coordinator.model import counting, holding
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.model.queueing import Queueing
from rampmeter_coordinator.model.rates import Rates
from rampmeter_coordinator.model.state import PoolState

Patch = pytest.MonkeyPatch
Misreading = Callable[[Patch], None]


def no_grace(patch: Patch) -> None:
    """Lost memory is an empty pool."""
    patch.setattr(PoolConfig, "grace_s", property(lambda self: 0.0))


def grace_raises(patch: Patch) -> None:
    """In grace the first to come back may have everything."""
    offerable = Rates.offerable

    def naive(self: Rates, job: Any, target: int, now_s: float) -> int:
        until_s, self._state.grace_until_s = self._state.grace_until_s, 0.0
        budget = self._state.config.budget_bytes_per_s
        rate = offerable(self, job, min(job.lease.max_bytes_per_s or budget, budget), now_s)
        self._state.grace_until_s = until_s
        return rate

    patch.setattr(Rates, "offerable", naive)


def grace_believes_its_memory(patch: Patch) -> None:
    """What is remembered of a lease is what it is, also where commits were lost."""
    patch.setattr(holding.Holding, "hold_no_more", lambda self, lease, request: None)


def grace_arms_nobody(patch: Patch) -> None:
    """In grace waiters wait: the lead-in begins after it."""
    serve = Queueing.serve

    def naive(self: Queueing, now_s: float) -> bool:
        return False if self._state.in_grace else serve(self, now_s)

    patch.setattr(Queueing, "serve", naive)


def other_boot_is_contact(patch: Patch) -> None:
    """The first request after another boot confirms contact of that moment."""
    rebase = counting.rebase

    def naive(job: Any, now_s: float, until_s: float) -> None:
        rebase(job, now_s, until_s)
        job.answered_received_s = now_s

    patch.setattr(counting, "rebase", naive)


def times_of_another_boot_are_taken_as_they_are(patch: Patch) -> None:
    """After a fail-over to another machine its clock is thought to be the old one."""
    patch.setattr(counting, "rebase", lambda job, now_s, until_s: None)


def times_of_another_boot_stay_in_the_store(patch: Patch) -> None:
    """What was made of another boot's times is not stored: the next restart reads them as times of this boot."""
    wake_up = PoolState.wake_up

    def naive(self: PoolState, now_s: float) -> list[Any]:
        jobs = wake_up(self, now_s)
        self._dirty.clear()
        return jobs

    patch.setattr(PoolState, "wake_up", naive)


def clocks_of_two_machines_are_equal(patch: Patch) -> None:
    """A standby takes the records over without moving their times to its clock."""
    patch.setattr("invariants.leader.shift_records", lambda records, offset: records)


def seen_epochs_are_not_read(patch: Patch) -> None:
    """The store and the clock know best how far epochs have come."""
    patch.setattr(PoolState, "outgrow", lambda self, seen_epoch: None)


def deposed_leader_answers(patch: Patch) -> None:
    """A leader whose commits are refused answers all the same."""
    commit = Store.commit

    def naive(self: Store, epoch: int, changes: Any) -> bool:
        return epoch < self.epoch or commit(self, epoch, changes)

    patch.setattr(Store, "commit", naive)


def reply_goes_out_before_its_commit(patch: Patch) -> None:
    """Commits lag behind by some decisions, and what lags is lost in a crash."""
    commit, begin = Store.commit, world_module.Leader.begin
    late: list[tuple[int, Any]] = []

    def naive(self: Store, epoch: int, changes: Any) -> bool:
        late.append((epoch, copy.copy(changes)))
        return len(late) < 8 or commit(self, *late.pop(0))

    def forgetful(self: Any, **words: Any) -> None:
        late.clear()
        begin(self, **words)

    patch.setattr(Store, "commit", naive)
    patch.setattr(world_module.Leader, "begin", forgetful)


def restore_made_anew_is_a_save(patch: Patch) -> None:
    """A lease that comes back after lost memory counts against the writes, whatever it is for."""
    recreate = holding.Holding.recreate

    def naive(self: Any, job: Any, request: Any, now_s: float) -> None:
        recreate(self, job, dataclasses.replace(request, kind=Kind.WRITE), now_s)

    patch.setattr(holding.Holding, "recreate", naive)


def tenants_other_leases_do_not_count(patch: Patch) -> None:
    """Each job of a tenant may have all of its cap."""
    patch.setattr(Rates, "_of_tenant_without", lambda self, job, lane, now_s: 0)
