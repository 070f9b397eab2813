"""Each rule, switched back to its naive reading inside the world, must be noticed: so these tests can fail.

The table of rules and of the tests that catch them is docs/ledger-rules.md.
"""

import dataclasses
from collections.abc import Callable

import pytest

from invariants.process import Process
from invariants.world import Faults, World
from rampmeter.core.leaseclock import Allowance, LeaseClock
from rampmeter.core.messages import MARGIN_S, Fence, LeaseState
from rampmeter_coordinator.model import counting
from rampmeter_coordinator.model.leasing import Leasing
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.model.state import PoolState

Patch = Callable[[pytest.MonkeyPatch], None]

LOSSY = Faults(loss=0.4)
RESTARTS = Faults(restarts=1 / 80, zombies=1 / 60)
FORGETFUL = Faults(restarts=1 / 80, forget=0.5)
MAX_SEEDS = 40


def lowered_is_answered(patch: pytest.MonkeyPatch) -> None:
    """Count the newest offer only."""
    patch.setattr(
        counting,
        "leased",
        lambda job, now_s: job.lease.offers[-1].bytes_per_s if job.lease and job.lease.offers else 0,
    )


def raise_before_lower(patch: pytest.MonkeyPatch) -> None:
    """Give the target, whatever others may still be using."""
    patch.setattr(Leasing, "_offerable", lambda self, job, target, now_s: target)


def contact_is_any_receipt(patch: pytest.MonkeyPatch) -> None:
    """A request alone is a sign of life."""
    confirmed = Leasing.confirmed

    def naive(self: Leasing, job: object, ack: int, now_s: float) -> None:
        confirmed(self, job, ack, now_s)
        job.contact_s = now_s

    patch.setattr(Leasing, "confirmed", naive)


def safe_counted_only_when_usable(patch: pytest.MonkeyPatch) -> None:
    """Count a silent job from the moment on at which it may write."""
    patch.setattr(counting, "silent_from", lambda job, config: (job.contact_s or 0.0) + config.safe_after_s)


def safe_right_after_the_lease(patch: pytest.MonkeyPatch) -> None:
    """Let the safe rate begin one TTL and the margin after contact."""
    patch.setattr(PoolConfig, "safe_after_s", property(lambda self: self.ttl_s + MARGIN_S))
    patch.setattr(counting, "silent_from", lambda job, config: (job.contact_s or 0.0) + config.ttl_s)


def restart_is_contact(patch: pytest.MonkeyPatch) -> None:
    """After a restart everybody counts as just heard of."""
    wake_up = PoolState.wake_up

    def naive(self: PoolState, now_s: float) -> list[object]:
        for job in self.jobs.values():
            job.contact_s = now_s
        return wake_up(self, now_s)

    patch.setattr(PoolState, "wake_up", naive)


def deadline_counts_from_the_answer(patch: pytest.MonkeyPatch) -> None:
    """Without `held_s` an agent can only count from the receipt of the answer."""

    def naive(self: LeaseClock, grant: object, first_sent_s: float) -> None:
        rate = grant.bytes_per_s if grant.state is LeaseState.ACTIVE else 0
        until_s = self._silent_since_s + grant.ttl_s - MARGIN_S
        self._lease = Allowance(bytes_per_s=rate, until_s=until_s, fence=grant.fence)

    patch.setattr(LeaseClock, "granted", naive)


def older_attempt_is_dropped(patch: pytest.MonkeyPatch) -> None:
    """A newer attempt frees at once what the older one holds."""
    patch.setattr(counting, "fence_off", lambda job, config, now_s: None)


def no_claim_read_in_fallback(patch: pytest.MonkeyPatch) -> None:
    """A silent agent never looks into the root."""
    patch.setattr(Process, "_stopped_by_claim", lambda self, now_s: False)


def safe_rates_raised_at_once(patch: pytest.MonkeyPatch) -> None:
    """Plans are issued without a look at what others hold."""
    patch.setattr(PoolState, "safe_room_for", lambda self, job: self.config.capacity_bytes_per_s)


def no_grace(patch: pytest.MonkeyPatch) -> None:
    """Lost memory is an empty pool."""
    patch.setattr(PoolConfig, "grace_s", property(lambda self: 0.0))


def grace_raises(patch: pytest.MonkeyPatch) -> None:
    """In grace the first to come back may have everything."""
    offerable = Leasing._offerable

    def naive(self: Leasing, job: object, target: int, now_s: float) -> int:
        until_s, self._state.grace_until_s = self._state.grace_until_s, 0.0
        rate = offerable(self, job, self._state.config.budget_bytes_per_s, now_s)
        self._state.grace_until_s = until_s
        return rate

    patch.setattr(Leasing, "_offerable", naive)


def fresh_ttl_on_replay(patch: pytest.MonkeyPatch) -> None:
    """A repeated request is decided anew in time only."""

    def naive(self: PoolState, job: object, now_s: float) -> None:
        self._send(
            job,
            job.answered_seq,
            dataclasses.replace(job.answer, held_s=now_s - (job.answered_received_s or now_s)),
        )

    patch.setattr(PoolState, "replay", naive)


def fence_begins_anew_after_restart(patch: pytest.MonkeyPatch) -> None:
    """The counter alone, without the epoch."""

    def naive(self: PoolState) -> Fence:
        self._counter += 1
        return Fence(epoch=0, counter=self._counter)

    patch.setattr(PoolState, "next_fence", naive)


def other_boot_is_contact(patch: pytest.MonkeyPatch) -> None:
    """The first request after another boot confirms contact of that moment."""
    rebase = counting.rebase

    def naive(job: object, now_s: float, until_s: float) -> None:
        rebase(job, now_s, until_s)
        job.answered_received_s = now_s

    patch.setattr(counting, "rebase", naive)


RULES = [
    (lowered_is_answered, FORGETFUL, "over"),
    (raise_before_lower, FORGETFUL, "over"),
    (contact_is_any_receipt, Faults(), "over"),
    (safe_counted_only_when_usable, Faults(partitions=1 / 40), "over"),
    (safe_right_after_the_lease, Faults(), "over"),
    (restart_is_contact, Faults(restarts=1 / 80, forget=0.0), "over"),
    (deadline_counts_from_the_answer, LOSSY, "over"),
    (older_attempt_is_dropped, RESTARTS, "over"),
    (no_claim_read_in_fallback, RESTARTS, "over"),
    (safe_rates_raised_at_once, Faults(), "over"),
    (no_grace, FORGETFUL, "over"),
    (grace_raises, FORGETFUL, "over"),
    (fresh_ttl_on_replay, RESTARTS, "over"),
    (fence_begins_anew_after_restart, RESTARTS, "fence"),
    (other_boot_is_contact, FORGETFUL, "over"),
]


@pytest.mark.parametrize(("wrong", "faults", "seen"), RULES, ids=[rule[0].__name__ for rule in RULES])
def test_a_rule_read_wrongly_is_noticed(
    monkeypatch: pytest.MonkeyPatch, wrong: Patch, faults: Faults, seen: str
) -> None:
    """Some seed shows the naive reading for what it is."""
    wrong(monkeypatch)
    for seed in range(MAX_SEEDS):
        world = World(seed, faults)
        world.run(1500.0)
        if any(seen in violation.what for violation in world.violations):
            return
    pytest.fail(f"{wrong.__name__} went unnoticed over {MAX_SEEDS} seeds")
