"""Notices and saves that are given up: nothing is written that cannot count, and nothing hangs."""

import pytest

from rampmeter.core.messages import Fence, GoneReason, WaitReason
from rampmeter.core.notice import GiveUp
from rampmeter.core.pacer import Action, Governance, PacerState
from support.answers import gone, grant, noted, wait
from support.pacing import START, at, flushing, hurry, registered, say


def wont_fit(fits_bytes=400):
    """The coordinator's word that an urgent save would be too late."""
    return wait(fits_bytes=fits_bytes, reason=WaitReason.WILL_NOT_FIT)


def noticed(now_s=START + 1.0, **more):
    """A registered pacer that was idle when the notice came."""
    pacer = registered(draw=0.9)
    hurry(pacer, now_s, **more)
    return pacer


def lapsed(pacer, now_s):
    """The lease has lapsed in the middle of a flush."""
    pacer.tick(now_s + 29.0)
    return now_s + 29.0


# -- before an announced end -----------------------------------------------------------------------------------------


def test_a_notice_asks_at_once_and_waits_two_seconds_at_most():
    """Then the save is written ungoverned: a notice does not wait for answers."""
    pacer = registered(draw=0.9)
    hurry(pacer, START + 1.0)
    assert at(pacer, START + 1.0) is Action.ASK
    pacer.asked()
    pacer.tick(START + 3.0)
    assert (pacer.wants_snapshot, pacer.governance) == (True, Governance.UNGOVERNED)


def test_a_notice_during_a_flush_lets_it_finish():
    """Two saves at once never: the running one is the one that counts."""
    pacer = registered()
    now_s = flushing(pacer)
    hurry(pacer, now_s)
    assert pacer.state is PacerState.FLUSHING
    pacer.ended(now_s + 1.0, committed=True)
    say(pacer, noted(), now_s + 1.0)
    assert pacer.state is PacerState.IDLE
    assert pacer.due_s > now_s + 1.0


def test_a_notice_after_the_end_of_a_save_asks_for_another():
    """Also while the release is still on its way; a release that nobody hears holds it up for two seconds at most."""
    pacer = registered()
    now_s = flushing(pacer)
    pacer.ended(now_s, committed=True)
    hurry(pacer, now_s)
    assert at(pacer, now_s + 1.9) is Action.RELEASE
    pacer.unreachable(now_s + 1.9, 10.0)
    pacer.tick(now_s + 2.0)
    assert (pacer.wants_snapshot, pacer.governance) == (True, Governance.UNGOVERNED)


def test_a_notice_lets_no_started_save_wait_for_a_silent_coordinator():
    """Its lease has lapsed and nobody answers: written on ungoverned, as a save is that had not begun."""
    pacer = registered()
    now_s = flushing(pacer)
    hurry(pacer, now_s)
    pacer.tick(now_s + 100.0)
    assert pacer.state is PacerState.WAITING
    pacer.unreachable(now_s + 100.0, 10.0)
    pacer.tick(now_s + 100.1)
    assert (pacer.state, pacer.governance) == (PacerState.FLUSHING, Governance.UNGOVERNED)


def test_what_will_not_fit_is_not_written():
    """No snapshot, no byte beside the leases of others: not at once and not after the two seconds."""
    pacer = noticed()
    assert say(pacer, wont_fit(), START + 1.0) is Action.ASK
    assert pacer.notice is None
    for now_s in (START + 1.1, START + 3.0, START + 60.0):
        assert at(pacer, now_s) in (Action.NOTHING, Action.HEARTBEAT)
        assert (pacer.state, pacer.wants_snapshot) == (PacerState.IDLE, False)
    assert (pacer.num_skipped, pacer.num_ungoverned) == (1, 0)


def test_a_save_that_is_given_up_says_what_is_left_and_what_would_fit():
    """For the log: the coordinator's figure and the time until the end."""
    pacer = noticed(notice_s=30.0)
    say(pacer, wont_fit(fits_bytes=7_000), START + 2.0)
    given_up = pacer.given_up
    assert (given_up.reason, given_up.fits_bytes, given_up.left_s) == (GiveUp.WILL_NOT_FIT, 7_000, 29.0)


def test_a_job_that_outlives_its_notice_saves_then():
    """The alarm was false: it asks at the deadline, like everybody else."""
    pacer = noticed(notice_s=30.0)
    say(pacer, wont_fit(), START + 2.0)
    assert at(pacer, START + 30.9) is not Action.ASK
    assert (at(pacer, START + 31.0), pacer.notice) == (Action.ASK, None)


def test_a_flush_that_will_not_fit_is_thrown_away():
    """Its lease has lapsed and there is no room for the rest: it asks no more, and falls back to nothing."""
    pacer = registered()
    now_s = lapsed(pacer, flushing(pacer))
    hurry(pacer, now_s)
    assert say(pacer, wont_fit(), now_s) is Action.ASK
    assert at(pacer, now_s + 3.0) is Action.NOTHING
    pacer.unreachable(now_s + 4.0, 1.0)
    pacer.tick(now_s + 100.0)
    assert (pacer.state, pacer.governance) == (PacerState.WAITING, Governance.LEASE)
    pacer.ended(now_s + 101.0, committed=False)
    assert (at(pacer, now_s + 101.0), pacer.notice) == (Action.RELEASE, None)


def test_a_late_will_not_fit_ends_what_was_begun_without_an_answer():
    """It answers after all: an ungoverned save that would be lost takes nothing from the others any more."""
    pacer = noticed()
    at(pacer, START + 1.0)
    pacer.tick(START + 3.0)
    pacer.begin_snapshot(START + 3.0)
    pacer.first_byte_in_hand()
    assert (pacer.state, pacer.governance) == (PacerState.FLUSHING, Governance.UNGOVERNED)
    pacer.answered(wont_fit(), START + 1.0, START + 4.0)
    assert (pacer.state, at(pacer, START + 4.0)) == (PacerState.WAITING, Action.NOTHING)


def test_a_place_that_came_to_nothing_is_not_given_back_as_a_save():
    """Armed, lapsed before training came by, and then it would not fit: no release, for there was no save."""
    pacer = registered()
    now_s = pacer.due_s
    say(pacer, grant(ttl_s=10.0), now_s)
    pacer.tick(now_s + 9.5)
    hurry(pacer, now_s + 9.5)
    say(pacer, wont_fit(), now_s + 9.5)
    assert at(pacer, now_s + 9.6) in (Action.NOTHING, Action.HEARTBEAT)


def test_will_not_fit_without_a_notice_is_a_wait_like_any_other():
    """Only who is about to end has a deadline; all others ask on."""
    pacer = registered()
    now_s = pacer.due_s
    say(pacer, wont_fit(), now_s)
    assert (at(pacer, now_s), pacer.given_up) == (Action.ASK, None)


def test_a_coordinator_that_answers_is_obeyed_beyond_two_seconds():
    """Told to wait, an urgent save waits, asks on as urgent, and takes the place that comes."""
    pacer = noticed()
    say(pacer, wait(retry_after_s=5.0), START + 1.0)
    assert at(pacer, START + 4.0) is Action.NOTHING
    assert pacer.state is PacerState.DUE
    assert say(pacer, grant(), START + 6.0) is Action.ASK
    assert (pacer.wants_snapshot, pacer.governance) == (True, Governance.LEASE)


def test_who_got_no_place_by_the_last_moment_gives_up():
    """The write takes 40 s at the job's own full speed: 80 s after the notice it is too late to begin."""
    pacer = noticed(notice_s=120.0, need_s=40.0)
    say(pacer, wait(retry_after_s=1.0), START + 1.0)
    pacer.unreachable(START + 2.0, 1.0)
    say(pacer, wait(retry_after_s=300.0), START + 3.0)
    assert pacer.wake_at(START + 20.0) == START + 81.0
    pacer.tick(START + 80.9)
    assert pacer.given_up is None
    pacer.tick(START + 81.0)
    assert (pacer.given_up.reason, pacer.given_up.left_s) == (GiveUp.TOO_LATE, 40.0)
    assert (pacer.state, pacer.wants_snapshot) == (PacerState.IDLE, False)


def test_its_own_forecast_alone_gives_nothing_up():
    """The agent may be wrong about its speed: before the first answer it does not give up."""
    pacer = noticed(notice_s=10.0, need_s=60.0)
    assert at(pacer, START + 1.0) is Action.ASK
    pacer.tick(START + 3.0)
    assert (pacer.given_up, pacer.governance) == (None, Governance.UNGOVERNED)


def test_a_coordinator_that_falls_silent_after_its_answer_is_waited_for_no_longer():
    """It said wait, and then nobody was there any more: written ungoverned."""
    pacer = noticed()
    say(pacer, wait(retry_after_s=1.0), START + 1.0)
    pacer.unreachable(START + 10.0, 10.0)
    pacer.tick(START + 10.0)
    assert (pacer.wants_snapshot, pacer.governance) == (True, Governance.UNGOVERNED)


def test_an_answer_from_before_the_notice_proves_nothing():
    """Its request was sent before: two seconds later nobody has answered the notice."""
    pacer = noticed()
    pacer.answered(noted(), START + 0.9, START + 1.1)
    pacer.tick(START + 3.0)
    assert (pacer.wants_snapshot, pacer.governance) == (True, Governance.UNGOVERNED)


# -- the lease is no more --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", [reason for reason in GoneReason if reason is not GoneReason.MAKE_ROOM])
def test_a_lease_that_is_gone_is_a_lapse(reason):
    """Rate 0 at once, the snapshot kept, asked for again; also after too long without a byte."""
    pacer = registered()
    now_s = flushing(pacer)
    say(pacer, gone(reason=reason), now_s + 1)
    assert (pacer.state, pacer.lease_clock.fence) == (PacerState.WAITING, None)
    assert (at(pacer, now_s + 1), pacer.holds_snapshot, pacer.first_byte) == (Action.ASK, True, True)
    say(pacer, grant(rate=3, fence=Fence(epoch=7, counter=2)), now_s + 2)
    assert pacer.state is PacerState.FLUSHING


def test_a_save_that_makes_room_is_thrown_away_and_its_job_stays_due():
    """It asks for nothing until its flush has ended, gives the lease back, and asks at once for a new save."""
    pacer = registered()
    now_s = flushing(pacer)
    say(pacer, gone(reason=GoneReason.MAKE_ROOM), now_s + 1)
    assert (pacer.state, pacer.given_up.reason) == (PacerState.WAITING, GiveUp.MAKE_ROOM)
    assert at(pacer, now_s + 1) is Action.NOTHING
    pacer.ended(now_s + 2, committed=False)
    assert say(pacer, noted(), now_s + 2) is Action.RELEASE
    assert (at(pacer, now_s + 2), pacer.state) == (Action.ASK, PacerState.DUE)
    assert (pacer.holds_snapshot, pacer.first_byte, pacer.num_skipped) == (False, False, 0)


def test_a_save_thrown_away_does_not_use_up_the_place_of_the_first():
    """The one that is committed in its stead is followed by the phase offset, as the first of an attempt is."""
    pacer = registered(draw=0.5)
    now_s = flushing(pacer)
    say(pacer, gone(reason=GoneReason.MAKE_ROOM), now_s)
    pacer.ended(now_s, committed=False)
    say(pacer, noted(), now_s)
    now_s = flushing(pacer)
    pacer.ended(now_s + 1, committed=True)
    say(pacer, noted(), now_s + 1)
    assert pacer.due_s == START + 30.0 + 100.0


def test_room_is_made_before_the_snapshot_without_any_loss():
    """Nothing was taken: the place is given back and asked for again."""
    pacer = registered()
    now_s = pacer.due_s
    say(pacer, grant(), now_s)
    say(pacer, gone(reason=GoneReason.MAKE_ROOM), now_s + 1)
    assert (at(pacer, now_s + 1), pacer.given_up) == (Action.ASK, None)


def test_the_last_save_before_the_end_is_not_thrown_away():
    """There will be no other: its rate is 0, it asks on as urgent with its snapshot."""
    pacer = registered()
    now_s = flushing(pacer)
    hurry(pacer, now_s)
    say(pacer, gone(reason=GoneReason.MAKE_ROOM), now_s + 1)
    assert (at(pacer, now_s + 1), pacer.holds_snapshot, pacer.given_up) == (Action.ASK, True, None)
    assert pacer.notice is not None


def test_a_save_whose_last_byte_was_out_is_committed_all_the_same():
    """The word came too late: it counts, and the next one is due after a period."""
    pacer = registered(draw=0.0)
    now_s = flushing(pacer)
    say(pacer, gone(reason=GoneReason.MAKE_ROOM), now_s + 1)
    pacer.ended(now_s + 1, committed=True)
    assert pacer.state is PacerState.COMMITTED
    say(pacer, noted(), now_s + 1)
    assert (pacer.state, pacer.due_s) == (PacerState.IDLE, START + 30.0)


def test_a_notice_while_room_is_made_wants_another_save():
    """The one in progress will not do: it is being thrown away."""
    pacer = registered()
    now_s = flushing(pacer)
    say(pacer, gone(reason=GoneReason.MAKE_ROOM), now_s + 1)
    hurry(pacer, now_s + 1.1)
    pacer.ended(now_s + 1.2, committed=False)
    say(pacer, noted(), now_s + 1.2)
    assert at(pacer, now_s + 1.2) is Action.ASK
    assert pacer.notice is not None


# -- what else a grant says ------------------------------------------------------------------------------------------


def test_the_bound_on_writers_is_that_of_the_newest_grant():
    """It comes with the lease and goes with it."""
    pacer = registered()
    now_s = pacer.due_s
    say(pacer, grant(max_streams=4), now_s)
    assert pacer.max_streams == 4
    pacer.begin_snapshot(now_s)
    say(pacer, grant(max_streams=2), now_s + 1)
    assert pacer.max_streams == 2
    pacer.ended(now_s + 2, committed=False)
    say(pacer, noted(), now_s + 2)
    assert pacer.max_streams is None
