"""A save that is due is asked for once somebody has looked whether it can be made; a notice waits for nobody."""

from rampmeter.core.looking import LOOK_AGAIN_S
from rampmeter.core.pacer import Action, PacerState
from support.answers import grant, noted
from support.pacing import START, at, hurry, make, registered, say


def test_nothing_is_asked_before_somebody_has_looked() -> None:
    """Due, and only heartbeats are said; then the request."""
    pacer = registered(looks_first=True)
    now_s = pacer.due_s
    assert not pacer.wants_look(now_s - 1)
    assert at(pacer, now_s) is not Action.ASK
    assert pacer.wants_look(now_s)
    pacer.look_first.cleared = True
    assert at(pacer, now_s) is Action.ASK
    assert not pacer.wants_look(now_s)


def test_what_forbids_the_save_is_looked_at_again() -> None:
    """Every 15 s, and the pacer wakes for it; the save stays due and is not skipped."""
    pacer = registered(looks_first=True)
    now_s = pacer.due_s
    at(pacer, now_s)
    pacer.look_first.begins(now_s)
    assert not pacer.wants_look(now_s + LOOK_AGAIN_S - 0.1)
    assert pacer.wake_at(now_s) <= now_s + LOOK_AGAIN_S
    assert pacer.wants_look(now_s + LOOK_AGAIN_S)
    assert (pacer.state, pacer.num_skipped) == (PacerState.DUE, 0)


def test_a_job_without_coordinator_is_held_back_too() -> None:
    """Nobody is asked, but the disk is as full."""
    pacer = make(local=True, looks_first=True)
    now_s = pacer.due_s
    pacer.tick(now_s)
    assert not pacer.wants_snapshot
    pacer.look_first.cleared = True
    pacer.tick(now_s)
    assert pacer.wants_snapshot


def test_after_a_notice_it_is_tried_whatever_is_told() -> None:
    """There will be no other save, and what was looked at may be wrong."""
    pacer = registered(looks_first=True)
    now_s = START + 1
    hurry(pacer, now_s)
    assert at(pacer, now_s) is Action.ASK


def test_each_save_has_a_look_of_its_own() -> None:
    """What was there for the last one may be gone."""
    pacer = registered(looks_first=True, draw=0.0)
    now_s = pacer.due_s
    pacer.tick(now_s)
    pacer.look_first.cleared = True
    say(pacer, grant(), now_s)
    pacer.begin_snapshot(now_s)
    pacer.first_byte_in_hand()
    say(pacer, grant(rate=9), now_s)
    pacer.ended(now_s + 1, committed=True)
    say(pacer, noted(), now_s + 1)
    assert at(pacer, pacer.due_s) is not Action.ASK
    assert pacer.wants_look(pacer.due_s)
