"""Each rule, switched back to its naive reading, must be noticed: so the suite can fail.

The table of rules, readings and what catches them is docs/ledger-rules.md.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from invariants import misread_levels as levels
from invariants import misread_restarts as restarts
from invariants import misreadings as wrong
from invariants.faults import Faults
from invariants.misreadings import Misreading
from invariants.world import POOL, World
from rampmeter_coordinator.model.pool import PoolConfig

TESTS = Path(__file__).parents[1]


LOSSY = Faults(loss=0.4)
RESTARTS = Faults(restarts=1 / 80, zombies=1 / 60)
FAIL_OVERS = Faults(restarts=1 / 50, forget=0.5, partitions=1 / 40, deaths=0, zombies=0)
FORGETFUL = Faults(restarts=1 / 80, forget=0.5)
PARTITIONS = Faults(partitions=1 / 40)
MAX_SEEDS = 60
FAULTY_S = 1500.0


@dataclass(frozen=True, slots=True, kw_only=True)
class InWorld:
    """A misreading that the observer of the adversarial world sees, as `seen`, under these faults."""

    reading: Misreading
    faults: Faults
    seen: str = "over"
    pool: PoolConfig = POOL


@dataclass(frozen=True, slots=True, kw_only=True)
class InTest:
    """A misreading that makes a test of the suite fail. `arguments` of that test, made from its module."""

    reading: Misreading
    test: str
    arguments: Callable[[ModuleType], tuple[Any, ...]] = lambda module: ()
    fails_with: type[Exception] = AssertionError
    match: str | None = None


IN_WORLD = [
    InWorld(reading=levels.newcomer_takes_no_room, faults=Faults(), seen="above every budget"),
    InWorld(reading=levels.silent_jobs_leave_all_room, faults=Faults()),
    InWorld(reading=levels.whoever_is_lowered_has_given_back, faults=RESTARTS, seen="above every budget"),
    InWorld(reading=wrong.lowered_is_answered, faults=FORGETFUL),
    InWorld(reading=wrong.lowering_is_dropped_on_supersede, faults=LOSSY),
    InWorld(reading=wrong.raise_before_lower, faults=FORGETFUL),
    InWorld(reading=wrong.held_renewal_keeps_its_rate, faults=PARTITIONS),
    InWorld(reading=wrong.deadline_counts_from_the_answer, faults=LOSSY),
    InWorld(reading=wrong.expiry_is_off_by_one_ttl, faults=Faults()),
    InWorld(reading=wrong.fresh_ttl_on_replay, faults=RESTARTS),
    InWorld(reading=wrong.replay_extends_the_lease, faults=LOSSY, seen="copy"),
    InWorld(reading=wrong.fence_begins_anew_after_restart, faults=RESTARTS, seen="fence"),
    InWorld(reading=wrong.epoch_is_not_kept, faults=RESTARTS, seen="fence"),
    InWorld(reading=wrong.older_attempt_is_dropped, faults=RESTARTS),
    InWorld(reading=wrong.stale_attempt_is_served, faults=RESTARTS, seen="copy"),
    InWorld(
        reading=wrong.nobody_starts_below_a_tenth_of_its_own_maximum, faults=Faults(), seen="nobody writes"
    ),
    InWorld(reading=wrong.contact_is_any_receipt, faults=Faults()),
    InWorld(reading=wrong.contact_is_stored_with_the_answer, faults=PARTITIONS),
    InWorld(reading=wrong.safe_counted_only_when_usable, faults=PARTITIONS),
    InWorld(reading=wrong.safe_right_after_the_lease, faults=Faults()),
    InWorld(reading=wrong.restart_is_contact, faults=Faults(restarts=1 / 80, forget=0.0)),
    InWorld(reading=wrong.no_claim_read_in_fallback, faults=RESTARTS),
    InWorld(reading=wrong.safe_rates_raised_at_once, faults=Faults()),
    InWorld(reading=restarts.no_grace, faults=FORGETFUL),
    InWorld(reading=restarts.grace_raises, faults=FORGETFUL),
    InWorld(reading=restarts.other_boot_is_contact, faults=FORGETFUL),
    InWorld(reading=restarts.times_of_another_boot_are_taken_as_they_are, faults=FORGETFUL),
    InWorld(reading=restarts.clocks_of_two_machines_are_equal, faults=FAIL_OVERS),
    InWorld(
        reading=restarts.restore_made_anew_is_a_save,
        faults=Faults(restarts=1 / 60, forget=0.7, restores=1 / 10, deaths=0, zombies=0),
        seen="reads over",
        pool=replace(POOL, read_capacity_bytes_per_s=300),
    ),
    InWorld(
        reading=restarts.tenants_other_leases_do_not_count,
        faults=Faults(),
        seen="tenant",
        pool=replace(POOL, max_tenant_bytes_per_s=300),
    ),
    InWorld(reading=restarts.deposed_leader_answers, faults=FAIL_OVERS),
    InWorld(reading=restarts.reply_goes_out_before_its_commit, faults=FAIL_OVERS),
]


IN_TEST = [
    InTest(
        reading=restarts.times_of_another_boot_stay_in_the_store,
        test="test_what_became_of_another_boots_times_outlives_the_next_restart",
    ),
    InTest(
        reading=restarts.seen_epochs_are_not_read,
        test="test_a_fence_is_above_all_that_the_agent_has_seen",
    ),
    InTest(
        reading=wrong.arming_waits_for_whoever_is_armed,
        test="test_who_has_its_first_byte_in_hand_writes_during_the_lead_of_another",
    ),
    InTest(
        reading=wrong.plan_of_shorter_leases_counts_as_late_as_all,
        test="test_a_plan_of_shorter_leases_counts_earlier",
    ),
    InTest(
        reading=wrong.replay_heard_late_prolongs_nothing,
        test="test_rule_9_a_replay_heard_late_prolongs_it",
    ),
    InTest(reading=wrong.safe_rates_never_end, test="test_rule_9_safe_rates_end"),
    InTest(
        reading=restarts.grace_believes_its_memory,
        test="test_rule_6_grace_raises_nobody_to_what_lost_commits_had_lowered",
    ),
    InTest(
        reading=restarts.grace_arms_nobody,
        test="test_rule_15_waiters_are_armed_in_grace",
        fails_with=AttributeError,
        match="'NoneType' object has no attribute 'state'",
    ),
    InTest(
        reading=wrong.start_within_60_s_whatever_the_lead,
        test="test_rule_11_a_long_lead_gets_twice_its_time",
    ),
    InTest(
        reading=wrong.held_requests_hide_contact,
        test="test_a_job_out_of_contact_is_asked_to_confirm",
    ),
    InTest(
        reading=wrong.bid_of_a_stale_attempt,
        test="test_an_old_attempts_age_is_no_claim_of_the_new_one",
    ),
    InTest(
        reading=wrong.every_urgent_save_fits,
        test="test_a_save_that_cannot_be_in_time_displaces_nobody",
    ),
    InTest(
        reading=wrong.revoked_lease_is_free_at_once,
        test="test_a_revoked_lease_counts_until_the_agent_confirms",
    ),
    InTest(
        reading=wrong.answers_of_a_lost_memory_are_believed,
        test="test_an_attempt_that_applied_unknown_answers_must_register_first",
    ),
    InTest(
        reading=wrong.cut_to_zero,
        test="test_a_hung_writer_is_cut_within_20_seconds_and_keeps_a_hundredth",
    ),
    InTest(
        reading=wrong.a_stall_of_the_storage_is_the_writers_fault,
        test="test_if_nobody_moves_it_is_storage",
        arguments=lambda module: (100.0,),
    ),
    InTest(
        reading=wrong.hung_writer_is_a_capacity_sample,
        test="test_what_is_no_sign_of_slow_storage",
        arguments=lambda module: (module.Pool(), module.report(500_000, 0.0)),
    ),
    InTest(
        reading=wrong.cpu_bound_writer_is_a_capacity_sample,
        test="test_what_is_no_sign_of_slow_storage",
        arguments=lambda module: (module.Pool(), module.report(500_000, 100_000, busy=0.5)),
    ),
]


@pytest.mark.parametrize("planted", IN_WORLD, ids=lambda planted: planted.reading.__name__)
def test_a_rule_read_wrongly_is_noticed(monkeypatch: pytest.MonkeyPatch, planted: InWorld) -> None:
    """Some seed shows the naive reading for what it is."""
    planted.reading(monkeypatch)
    for seed in range(MAX_SEEDS):
        world = World(seed, planted.faults, config=planted.pool)
        world.run(FAULTY_S)
        if any(planted.seen in violation.what for violation in world.violations):
            return
    pytest.fail(f"{planted.reading.__name__} went unnoticed over {MAX_SEEDS} seeds")


@pytest.mark.parametrize("planted", IN_TEST, ids=lambda planted: planted.reading.__name__)
def test_a_rule_read_wrongly_fails_its_test(monkeypatch: pytest.MonkeyPatch, planted: InTest) -> None:
    """The named test passes as things are, and fails under the naive reading."""
    test, arguments = _test_of(planted)
    test(*arguments())
    planted.reading(monkeypatch)
    with pytest.raises(planted.fails_with, match=planted.match):
        test(*arguments())


def _test_of(planted: InTest) -> tuple[Callable[..., None], Callable[[], tuple[Any, ...]]]:
    (path,) = [path for path in TESTS.rglob("test_*.py") if f"def {planted.test}(" in path.read_text()]
    spec = importlib.util.spec_from_file_location(f"planted_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, planted.test), lambda: planted.arguments(module)
