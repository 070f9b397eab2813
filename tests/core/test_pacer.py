"""The pacer, driven by hand: events in, what to say and whether to snapshot out."""

import math

import pytest

from rampmeter.core.messages import Fence
from rampmeter.core.pacer import TRANSITIONS, Action, Governance, PacerState
from support.answers import FENCE, grant, noted, plan, wait
from support.pacing import START, at, due, flushing, make, registered, say


def test_first_thing_said_is_the_registration():
    """An attempt presents itself before anything else."""
    assert at(make(), START) is Action.REGISTER


def test_first_save_comes_within_the_first_interval_of_the_plan():
    """The dry run is at draw x min(T, 600 s)."""
    assert registered(draw=0.25).due_s == START + 25.0


def test_second_save_is_at_the_phase_offset():
    """Registration + phase offset modulo the interval, the next time that this comes."""
    pacer = registered(draw=0.5)
    now_s = flushing(pacer)
    pacer.ended(now_s + 1, committed=True)
    say(pacer, noted(), now_s + 1)
    assert pacer.due_s == START + 30.0 + 100.0


def test_later_saves_follow_the_snapshot_by_the_requested_time():
    """Next request = actual snapshot + request_after_s."""
    pacer = registered(draw=0.0)
    for _ in range(2):
        now_s = flushing(pacer)
        pacer.ended(now_s + 1, committed=True)
        say(pacer, noted(), now_s + 1)
    assert pacer.due_s == now_s + 100.0


def test_a_changed_interval_scales_what_remains():
    """Jobs never re-align when T changes: next = now + remaining x T_new / T_old."""
    pacer = registered(draw=0.0)
    now_s = flushing(pacer)
    pacer.ended(now_s, committed=True)
    say(pacer, noted(), now_s)
    remaining_s = pacer.due_s - now_s
    pacer.answered(noted(plan=plan(number=2, interval_s=300.0)), now_s, now_s)
    assert pacer.due_s == pytest.approx(now_s + 3 * remaining_s)


def test_no_snapshot_before_a_slot():
    """Slot first: in DUE and WAITING training goes on."""
    pacer = registered()
    now_s = due(pacer)
    assert pacer.next_action(now_s) is Action.ASK
    pacer.asked()
    assert pacer.state is PacerState.WAITING
    assert not pacer.wants_snapshot


def test_wait_is_obeyed():
    """The next request goes out after retry_after_s, not before; heartbeats go on meanwhile."""
    pacer = registered()
    now_s = due(pacer)
    say(pacer, wait(retry_after_s=20.0), now_s)
    assert at(pacer, now_s + 1) is Action.NOTHING
    assert at(pacer, now_s + 16) is Action.HEARTBEAT
    assert at(pacer, now_s + 20) is Action.ASK


def test_life_of_a_save():
    """Armed, snapshot, first byte, rate, committed, released: each state once and in order."""
    pacer = registered()
    now_s = due(pacer)
    say(pacer, grant(), now_s)
    assert (pacer.state, pacer.wants_snapshot) == (PacerState.ARMED, True)
    pacer.begin_snapshot(now_s)
    assert (at(pacer, now_s), pacer.wants_snapshot) == (Action.RENEW, False)
    pacer.first_byte_in_hand()
    assert (at(pacer, now_s), pacer.state) == (Action.READY, PacerState.READY)
    say(pacer, grant(rate=9), now_s)
    assert (at(pacer, now_s), pacer.state) == (Action.RENEW, PacerState.FLUSHING)
    pacer.ended(now_s, committed=True)
    assert (at(pacer, now_s), pacer.state) == (Action.RELEASE, PacerState.COMMITTED)
    say(pacer, noted(), now_s)
    assert pacer.state is PacerState.IDLE


def test_ready_at_rate_zero_waits_for_its_rate_in_renewals():
    """A ready lease without a rate says ready once and then renews until there is one."""
    pacer = registered()
    now_s = due(pacer)
    say(pacer, grant(), now_s)
    pacer.begin_snapshot(now_s)
    pacer.first_byte_in_hand()
    assert say(pacer, grant(), now_s) is Action.READY
    assert say(pacer, grant(), now_s + 1) is Action.RENEW
    assert pacer.state is PacerState.READY
    say(pacer, grant(rate=5), now_s + 2)
    assert pacer.state is PacerState.FLUSHING


def test_a_lapsed_lease_writes_nothing_and_asks_again():
    """Past its deadline the lease is dropped, the snapshot kept, a slot asked for."""
    pacer = registered()
    now_s = flushing(pacer)
    pacer.tick(now_s + 29.0)
    assert pacer.state is PacerState.WAITING
    assert pacer.holds_snapshot
    assert pacer.lease_clock.allowance(now_s + 29.0).bytes_per_s == 0
    assert pacer.next_action(now_s + 29.0) is Action.ASK


def test_regained_lease_goes_on_with_the_same_snapshot():
    """After a lapse a grant leads back to flushing, not to a second snapshot."""
    pacer = registered()
    now_s = flushing(pacer)
    pacer.tick(now_s + 29.0)
    say(pacer, grant(rate=4, fence=Fence(epoch=7, counter=2)), now_s + 30.0)
    assert pacer.state is PacerState.FLUSHING
    assert not pacer.wants_snapshot


def test_a_lease_that_lapses_before_the_snapshot_is_asked_for_anew():
    """Training did not come by in time: nothing was taken, nothing is lost."""
    pacer = registered()
    now_s = due(pacer)
    say(pacer, grant(ttl_s=10.0), now_s)
    pacer.tick(now_s + 9.5)
    assert (pacer.state, pacer.wants_snapshot) == (PacerState.WAITING, False)


def test_silent_coordinator_is_replaced_by_the_safe_rate_when_it_is_usable():
    """Usable from the last answer + safe_after_s on, never before."""
    pacer = registered(draw=0.9)
    now_s = due(pacer)
    assert now_s == START + 90.0
    pacer.unreachable(now_s, 1.0)
    pacer.tick(START + 89.9)
    assert pacer.state is PacerState.DUE
    pacer.tick(START + 90.0)
    assert (pacer.state, pacer.governance) == (PacerState.ARMED, Governance.SAFE_RATE)
    assert pacer.lease_clock.allowance(START + 90.0).bytes_per_s == 5_000_000


def test_a_flush_cut_off_goes_on_at_the_safe_rate():
    """Lease until its deadline, nothing until the safe rate, then the safe rate."""
    pacer = registered()
    now_s = flushing(pacer)
    pacer.unreachable(now_s, 1.0)
    rates = {}
    for later_s in (28.9, 29.0, 89.9, 90.0):
        pacer.tick(now_s + later_s)
        rates[later_s] = pacer.lease_clock.allowance(now_s + later_s).bytes_per_s
    assert rates == {28.9: 9, 29.0: 0, 89.9: 0, 90.0: 5_000_000}
    assert (pacer.state, pacer.governance) == (PacerState.FLUSHING, Governance.SAFE_RATE)


def test_any_answer_ends_the_safe_rate_at_once():
    """The coordinator is back: only a lease counts from that instant."""
    pacer = registered()
    now_s = flushing(pacer)
    pacer.unreachable(now_s, 1.0)
    pacer.tick(now_s + 90.0)
    pacer.answered(noted(), now_s + 95.0, now_s + 95.0)
    assert pacer.lease_clock.allowance(now_s + 95.0).bytes_per_s == 0
    assert at(pacer, now_s + 95.0) is Action.ASK


def test_without_any_plan_a_save_is_written_ungoverned():
    """A coordinator that never answered holds up no checkpoint; the save is counted."""
    pacer = make()
    pacer.unreachable(START, 1.0)
    now_s = due(pacer)
    assert (pacer.state, pacer.governance) == (PacerState.ARMED, Governance.UNGOVERNED)
    pacer.begin_snapshot(now_s)
    pacer.first_byte_in_hand()
    assert pacer.state is PacerState.FLUSHING
    pacer.ended(now_s + 1, committed=True)
    pacer.tick(now_s + 1)
    assert (pacer.state, pacer.num_ungoverned) == (PacerState.IDLE, 1)
    assert pacer.due_s == now_s + 40.0


def test_after_the_safe_rate_has_ended_saves_are_ungoverned():
    """safe_for_s is over: the job goes on, outside the promise."""
    pacer = registered()
    pacer.unreachable(START, 1.0)
    pacer.tick(START + 90.0 + 3600.0)
    assert pacer.governance is Governance.UNGOVERNED


def test_a_plan_kept_on_disk_governs_a_start_without_coordinator():
    """Silence begins at the start of the process: no write before safe_after_s."""
    pacer = make(kept=plan(), draw=0.1)
    pacer.unreachable(START, 1.0)
    pacer.tick(START + 89.0)
    assert pacer.state is PacerState.DUE
    pacer.tick(START + 90.0)
    assert pacer.governance is Governance.SAFE_RATE


def test_local_pacer_says_nothing_and_saves_by_its_own_period():
    """Without a coordinator it is a complete local checkpointer."""
    pacer = make(local=True, draw=0.5)
    now_s = due(pacer)
    assert now_s == START + 20.0
    assert (at(pacer, now_s), pacer.wants_snapshot) == (Action.NOTHING, True)


def test_a_forgotten_attempt_registers_again_in_the_middle_of_a_flush():
    """Lost memory: register, then the renewal tells what is held; the flush goes on."""
    pacer = registered()
    now_s = flushing(pacer)
    pacer.forgotten()
    assert say(pacer, noted(plan=plan()), now_s + 1) is Action.REGISTER
    assert (at(pacer, now_s + 1), pacer.state) == (Action.RENEW, PacerState.FLUSHING)


def test_a_save_that_ends_while_waiting_gives_the_late_grant_back():
    """The release that follows carries the fence of a grant that crossed the end of the save."""
    pacer = registered()
    now_s = flushing(pacer)
    pacer.tick(now_s + 29.0)
    pacer.ended(now_s + 29.5, committed=True)
    late = Fence(epoch=7, counter=9)
    pacer.answered(grant(rate=4, fence=late), now_s + 29.0, now_s + 29.6)
    assert (pacer.save_fence, at(pacer, now_s + 29.6)) == (late, Action.RELEASE)


def test_a_release_that_nobody_hears_is_given_up():
    """After 30 s the pacer goes on: the lease ends by itself."""
    pacer = registered()
    now_s = flushing(pacer)
    pacer.ended(now_s, committed=True)
    pacer.unreachable(now_s, 1.0)
    pacer.tick(now_s + 29.0)
    assert pacer.state is PacerState.COMMITTED
    pacer.tick(now_s + 30.0)
    assert pacer.state is PacerState.IDLE


def test_due_saves_during_a_long_flush_are_skipped_and_counted():
    """One save in flight: what fell due meanwhile is never queued."""
    pacer = registered(draw=0.0)
    for _ in range(2):
        now_s = flushing(pacer)
        pacer.ended(now_s, committed=True)
        say(pacer, noted(), now_s)
    now_s = flushing(pacer)
    pacer.ended(now_s + 250.0, committed=True)
    pacer.released(now_s + 250.0)
    assert (pacer.num_skipped, pacer.due_s) == (2, now_s + 300.0)


def test_a_confirm_answer_is_followed_at_once():
    """So that silence is over in one round trip."""
    pacer = registered()
    pacer.answered(noted(confirm=True), START, START)
    assert at(pacer, START) is Action.HEARTBEAT


@pytest.mark.parametrize("state", PacerState)
def test_an_illegal_move_raises_and_changes_nothing(state):
    """Transitions are a table; what is not in it does not happen."""
    pacer = make()
    pacer.state = state
    for target in set(PacerState) - TRANSITIONS[state]:
        with pytest.raises(AssertionError):
            pacer._to(target)
        assert pacer.state is state


def test_wakes_for_the_next_due_save():
    """Idle until the save is due or a heartbeat is."""
    pacer = registered(draw=0.1)
    assert pacer.wake_at(START) == START + 10.0
    assert make(local=True, draw=0.5).wake_at(START) == START + 20.0
    assert make(local=True, draw=0.5).wake_at(START + 30.0) == math.inf


def test_lease_is_dropped_with_the_release():
    """An ended save holds nothing."""
    pacer = registered()
    now_s = flushing(pacer)
    assert pacer.lease_clock.fence == FENCE
    pacer.ended(now_s, committed=False)
    say(pacer, noted(), now_s)
    assert pacer.lease_clock.fence is None


def test_an_ended_save_gives_its_lease_back_without_waiting():
    """A renewal had no answer and is to be tried again later; the storage is free now."""
    pacer = registered()
    now_s = flushing(pacer)
    pacer.unreachable(now_s, 20.0)
    assert at(pacer, now_s + 1) is Action.NOTHING
    pacer.ended(now_s + 1, committed=True)
    assert at(pacer, now_s + 1) is Action.RELEASE
