"""What an agent may use, and until when."""

import pytest

from rampmeter.core.leaseclock import NOTHING, LeaseClock
from rampmeter.core.lifecycle import Governance
from rampmeter.core.messages import Fence, Grant, LeaseState, Plan, PlanReason, RateReason

FENCE = Fence(epoch=1, counter=1)


def plan(safe_bytes_per_s: int = 40) -> Plan:
    return Plan(
        number=1,
        interval_s=300.0,
        phase_offset_s=0.0,
        request_after_s=300.0,
        safe_bytes_per_s=safe_bytes_per_s,
        safe_after_s=90.0,
        safe_for_s=600.0,
        heartbeat_s=15.0,
        reason=PlanReason.OWN_PERIOD,
        price_gpu_s_per_byte=0.0,
    )


def grant(rate: int = 100, *, held_s: float = 0.0, state: LeaseState = LeaseState.ACTIVE) -> Grant:
    return Grant(
        seq=1,
        held_s=held_s,
        confirm=False,
        fence=FENCE,
        state=state,
        bytes_per_s=rate,
        ttl_s=30.0,
        reason=RateReason.FULL,
    )


def test_nothing_is_allowed_from_the_start() -> None:
    """No lease, no plan, no writing."""
    clock = LeaseClock()
    assert clock.allowance(0.0) == NOTHING
    assert not clock.lapsed(0.0)
    assert clock.fence is None


@pytest.mark.parametrize(("held_s", "until_s"), [(0.0, 129.0), (20.0, 149.0)])
def test_a_lease_ends_a_margin_before_the_coordinators_own_expiry(held_s: float, until_s: float) -> None:
    """First send + held_s + TTL - 1 s, however late the answer came."""
    clock = LeaseClock()
    clock.granted(grant(held_s=held_s), 100.0)
    assert clock.allowance(until_s - 0.1).bytes_per_s == 100
    assert clock.allowance(until_s).bytes_per_s == 0
    assert clock.lapsed(until_s)
    assert clock.fence == FENCE


@pytest.mark.parametrize("state", [LeaseState.ARMED, LeaseState.UNKNOWN, LeaseState.REVOKED])
def test_only_an_active_lease_allows_bytes(state: LeaseState) -> None:
    """Armed means rate 0, and an unknown state is read carefully."""
    clock = LeaseClock()
    clock.granted(grant(state=state), 100.0)
    assert clock.allowance(101.0).bytes_per_s == 0


def test_silence_brings_the_safe_rate_late_and_for_a_while() -> None:
    """From 3 TTL after the receipt of the last answer on, for safe_for_s."""
    clock = LeaseClock()
    clock.answered(100.0, plan())
    assert clock.allowance(189.9) == NOTHING
    assert clock.allowance(190.0).bytes_per_s == 40
    assert clock.allowance(190.0).fence is None
    assert clock.allowance(789.9).bytes_per_s == 40
    assert clock.allowance(790.0) == NOTHING


def test_any_answer_ends_the_safe_rate_at_once() -> None:
    """Also one without a plan: the newest plan stays."""
    clock = LeaseClock()
    clock.answered(100.0, plan())
    clock.answered(200.0, None)
    assert clock.allowance(200.0) == NOTHING
    assert clock.allowance(290.0).bytes_per_s == 40


def test_a_live_lease_hides_the_safe_rate() -> None:
    """Never both, also where the lease is at rate 0."""
    clock = LeaseClock()
    clock.remember(plan(), 0.0)
    clock.granted(grant(0), 100.0)
    assert clock.allowance(128.0).bytes_per_s == 0
    assert clock.allowance(129.0).bytes_per_s == 40


def test_between_a_lapsed_lease_and_the_safe_rate_nothing_is_allowed() -> None:
    """A lapsed lease is 0 until the safe rate is usable."""
    clock = LeaseClock()
    clock.answered(100.0, plan())
    clock.granted(grant(), 100.0)
    assert [clock.allowance(at_s).bytes_per_s for at_s in (128.9, 129.0, 189.9, 190.0)] == [100, 0, 0, 40]


def test_a_remembered_plan_counts_silence_from_now() -> None:
    """A plan kept on disk is usable 3 TTL after the start of its new reader."""
    clock = LeaseClock()
    clock.remember(plan(), 1000.0)
    assert clock.allowance(1089.9) == NOTHING
    assert clock.allowance(1090.0).bytes_per_s == 40


def test_a_dropped_lease_is_no_more() -> None:
    """Released or gone: nothing is held, nothing has lapsed."""
    clock = LeaseClock()
    clock.granted(grant(), 100.0)
    clock.dropped()
    assert clock.allowance(101.0) == NOTHING
    assert not clock.lapsed(200.0)
    assert clock.fence is None


def test_the_times_of_changes_are_told() -> None:
    """A shell sleeps until the next of them."""
    clock = LeaseClock()
    clock.answered(100.0, plan())
    clock.granted(grant(), 100.0)
    assert set(clock.changes()) == {129.0, 190.0, 790.0}


def test_in_silence_a_save_goes_on_at_the_safe_rate_and_then_without_any_right() -> None:
    """Not before the safe rate is usable, whatever it is; where it is 0, without one from then on."""
    clock, without = LeaseClock(), LeaseClock()
    clock.answered(100.0, plan())
    without.answered(100.0, plan(safe_bytes_per_s=0))
    times_s = (100.0, 189.9, 190.0, 789.9, 790.0)
    safe, own = Governance.SAFE_RATE, Governance.UNGOVERNED
    assert [clock.right_in_silence(now_s) for now_s in times_s] == [None, None, safe, safe, own]
    assert [without.right_in_silence(now_s) for now_s in times_s] == [None, None, own, own, own]


def test_in_silence_without_a_plan_nothing_is_waited_for() -> None:
    """There will be no safe rate."""
    assert LeaseClock().right_in_silence(0.0) is Governance.UNGOVERNED
