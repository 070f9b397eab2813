"""When to speak to the coordinator next."""

from rampmeter.core.talk import Talk
from support.answers import plan

START = 1000.0


def answered(talk: Talk, now_s: float, *, confirm: bool = False, of_reread: bool = False) -> None:
    talk.answered(now_s, plan(heartbeat_s=15.0), confirm=confirm, of_reread=of_reread)


def test_from_the_start_it_may_ask_and_beats_once_registered() -> None:
    """Nobody who is unknown sends a heartbeat."""
    talk = Talk(now_s=START, registered=False)
    assert talk.may_ask(START)
    assert not talk.may_beat(START)
    talk.registered = True
    assert talk.may_beat(START)


def test_an_answer_puts_off_the_next_heartbeat() -> None:
    """By the time that the plan says; without a plan the next one is due at once."""
    talk = Talk(now_s=START, registered=True)
    answered(talk, START)
    assert not talk.may_beat(START + 14.9)
    assert talk.may_beat(START + 15.0)
    talk.answered(START + 20.0, None, confirm=False, of_reread=False)
    assert talk.may_beat(START + 20.0)


def test_an_answer_that_wants_a_confirmation_makes_a_heartbeat_due() -> None:
    """Whatever it was an answer to."""
    talk = Talk(now_s=START, registered=True)
    answered(talk, START)
    answered(talk, START + 1.0, confirm=True, of_reread=True)
    assert talk.may_beat(START + 1.0)


def test_what_is_read_back_puts_off_no_heartbeat() -> None:
    """It may be talked about for hours, and training tells of its steps meanwhile."""
    talk = Talk(now_s=START, registered=True)
    answered(talk, START)
    answered(talk, START + 10.0, of_reread=True)
    assert talk.may_beat(START + 15.0)


def test_without_an_answer_nothing_is_said_until_the_back_off_is_over() -> None:
    """Neither a request nor a heartbeat; both times are told."""
    talk = Talk(now_s=START, registered=True)
    talk.unanswered(START, 4.0)
    assert talk.is_silent
    assert not talk.may_ask(START + 3.9)
    assert not talk.may_beat(START + 3.9)
    assert talk.may_ask(START + 4.0)
    assert talk.may_beat(START + 4.0)
    assert set(talk.changes()) == {START + 4.0}


def test_any_answer_ends_silence_and_back_off() -> None:
    """Also one that says nothing else."""
    talk = Talk(now_s=START, registered=True)
    talk.unanswered(START, 60.0)
    answered(talk, START + 1.0, of_reread=True)
    assert not talk.is_silent
    assert talk.may_ask(START + 1.0)


def test_a_wait_that_was_told_is_kept_unless_there_is_something_new() -> None:
    """Heartbeats go on meanwhile."""
    talk = Talk(now_s=START, registered=True)
    answered(talk, START)
    talk.told_to_wait(START + 30.0)
    assert not talk.may_ask(START + 29.9)
    assert talk.may_beat(START + 15.0)
    assert set(talk.changes()) == {START + 15.0, START + 30.0}
    talk.hurries()
    assert talk.may_ask(START)
