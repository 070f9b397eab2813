"""A restore's place in the life of a job: it asks, waits as long as somebody answers, and no longer. By hand."""

import math
import random

import pytest

from rampmeter.core.messages import GoneReason, WaitReason
from rampmeter.core.pacer import Action, Governance, PacerState
from rampmeter.core.reading import RELEASE_TRIES_S, ReadState, ReadWait
from support.answers import FENCE, gone, grant, noted, plan, wait
from support.pacing import START, at, due, flushing, make, registered

SIZE = 6_000
DELAY_S = 12.0
T = START + 1.0


def wanting(now_s=T, **more):
    """A registered job whose restore has just begun."""
    pacer = registered(read_unasked_s=DELAY_S, **more)
    pacer.begin_reading(SIZE, now_s)
    return pacer


def hear(pacer, answer, now_s, sent_s=None):
    """What the restore wants to say at `now_s` is said and answered."""
    action = at(pacer, now_s)
    assert action in (Action.ASK_READ, Action.RENEW_READ, Action.RELEASE_READ), action
    pacer.answered(answer, now_s if sent_s is None else sent_s, now_s, of_read=True)
    pacer.said(action, now_s)
    pacer.tick(now_s)
    return action


def reading(rate=100, now_s=T, **more):
    pacer = wanting(now_s, **more)
    assert hear(pacer, grant(rate=rate), now_s) is Action.ASK_READ
    return pacer


def rate(pacer, now_s):
    pacer.tick(now_s)
    return pacer.reading.allowance(now_s)[0]


# -- asking and reading --------------------------------------------------------------------------------------------


def test_registration_comes_first_then_the_slot_then_the_bytes():
    """Nothing is read before the grant; then at its rate up to its deadline, and it is renewed."""
    pacer = make(read_unasked_s=DELAY_S)
    pacer.begin_reading(SIZE, START)
    assert at(pacer, START) is Action.REGISTER
    pacer.answered(noted(plan=plan()), START, START)
    pacer.said(Action.REGISTER, START)
    assert rate(pacer, T) == 0
    assert hear(pacer, grant(rate=100), T) is Action.ASK_READ
    assert pacer.reading.allowance(T) == (100, T + 30.0 - 1.0)
    assert at(pacer, T) is Action.RENEW_READ


def test_it_waits_as_long_as_somebody_answers():
    """An hour of waiting with an answer every half minute: still nothing is read, and the reason is known."""
    pacer, now_s = wanting(), T
    while now_s < T + 3600.0:
        hear(pacer, wait(retry_after_s=25.0), now_s)
        assert at(pacer, now_s + 20.0) is not Action.ASK_READ
        now_s += 30.0
        assert rate(pacer, now_s) == 0
        assert pacer.reading.waits_for(now_s) is WaitReason.QUEUE


def test_a_lease_at_rate_0_pauses_and_goes_on():
    """The place is kept: it is renewed, not asked for anew."""
    pacer = reading()
    hear(pacer, grant(rate=0), T + 5)
    assert rate(pacer, T + 6) == 0
    assert hear(pacer, grant(rate=70), T + 7) is Action.RENEW_READ
    assert rate(pacer, T + 8) == 70


@pytest.mark.parametrize("reason", list(GoneReason))
def test_a_lease_that_is_gone_is_asked_for_again(reason):
    """Whatever the reason: rate 0 at once, then a new lease goes on."""
    pacer = reading()
    hear(pacer, gone(reason=reason), T + 5)
    assert rate(pacer, T + 5) == 0
    assert hear(pacer, grant(rate=50), T + 6) is Action.ASK_READ
    assert rate(pacer, T + 7) == 50


def test_when_all_is_read_the_lease_is_given_back_at_once():
    """What is loaded from memory needs no storage."""
    pacer = reading()
    pacer.reading.read_through(T + 3)
    assert rate(pacer, T + 3) == 0
    assert (pacer.reading.owed, pacer.reading.is_active) == (FENCE, True)
    assert hear(pacer, noted(), T + 3) is Action.RELEASE_READ
    assert at(pacer, T + 4) is Action.NOTHING
    pacer.reading.end(T + 5)
    assert pacer.reading.owed is None


def test_a_restore_that_ends_early_gives_its_lease_back_too():
    """Whatever ended it."""
    pacer = reading()
    pacer.reading.end(T + 3)
    assert hear(pacer, noted(), T + 3) is Action.RELEASE_READ
    assert pacer.reading.state is ReadState.IDLE


def test_a_restore_that_follows_another_gives_back_first():
    """A damaged checkpoint is followed by the one before it: each has a lease of its own."""
    pacer = reading()
    pacer.reading.end(T + 3)
    pacer.begin_reading(SIZE, T + 3)
    assert hear(pacer, noted(), T + 3) is Action.RELEASE_READ
    assert at(pacer, T + 3) is Action.ASK_READ


def test_a_grant_that_comes_after_the_end_is_given_back():
    """It was on its way."""
    pacer = wanting()
    assert at(pacer, T) is Action.ASK_READ
    pacer.reading.end(T + 1)
    pacer.answered(grant(rate=100), T, T + 1, of_read=True)
    assert pacer.reading.allowance(T + 1) == (0, None)
    assert hear(pacer, noted(), T + 1) is Action.RELEASE_READ


def test_a_release_that_nobody_hears_is_given_up():
    """The lease ends by itself."""
    pacer = reading()
    pacer.reading.end(T + 3)
    assert at(pacer, T + 3 + RELEASE_TRIES_S - 1) is Action.RELEASE_READ
    assert at(pacer, T + 3 + RELEASE_TRIES_S) is not Action.RELEASE_READ


# -- silence -------------------------------------------------------------------------------------------------------


def test_where_nobody_ever_answered_it_begins_after_the_delay():
    """Counted from when it wanted to read; without a lease, and counted once."""
    pacer = make(read_unasked_s=DELAY_S)
    pacer.unreachable(START + 0.1, 5.0)
    pacer.begin_reading(SIZE, T)
    assert pacer.reading.waits_for(T) is ReadWait.DELAY
    assert pacer.wake_at(T + 11.0) == T + DELAY_S
    assert rate(pacer, T + DELAY_S - 0.1) == 0
    assert rate(pacer, T + DELAY_S) is None
    assert (pacer.reading.governance, pacer.reading.num_ungoverned) == (Governance.UNGOVERNED, 1)


def test_a_first_answer_that_is_still_on_its_way_is_waited_for():
    """As long as no request has failed; then the delay counts from the wish, since nobody was there before either."""
    pacer = make(read_unasked_s=DELAY_S)
    pacer.begin_reading(SIZE, T)
    assert rate(pacer, T + DELAY_S) == 0
    assert pacer.reading.waits_for(T + DELAY_S) is ReadWait.FIRST_ANSWER
    pacer.unreachable(T + DELAY_S, 1.0)
    assert rate(pacer, T + DELAY_S) is None


def test_a_request_that_is_held_is_no_silence():
    """Somebody answered before, and nothing has failed since."""
    pacer = wanting()
    assert rate(pacer, T + 25.0) == 0
    assert pacer.reading.waits_for(T + 25.0) is ReadWait.ROOM


def test_a_coordinator_that_dies_while_many_wait_does_not_start_them_together():
    """The delay counts from the silence, not from a wish that is long past."""
    pacer = wanting()
    hear(pacer, wait(retry_after_s=1.0), T)
    pacer.unreachable(T + 600.0, 1.0)
    assert rate(pacer, T + 600.0 + DELAY_S - 0.1) == 0
    pacer.unreachable(T + 605.0, 1.0)  # silence began with the first of them
    assert rate(pacer, T + 600.0 + DELAY_S) is None


def test_a_coordinator_that_dies_in_mid_restore_holds_it_up_for_its_lease_and_the_delay():
    """The lease is used to its end; then rate 0 for the delay, then without."""
    pacer = reading()
    pacer.unreachable(T + 2.0, 0.5)
    assert rate(pacer, T + 28.9) == 100
    assert rate(pacer, T + 29.0) == 0
    assert at(pacer, T + 29.0) is Action.ASK_READ
    assert rate(pacer, T + 29.0 + DELAY_S - 0.1) == 0
    assert rate(pacer, T + 29.0 + DELAY_S) is None


def test_a_coordinator_that_is_back_ends_reading_without_a_lease():
    """From its first answer on only a lease counts; the restore is counted once, however often that happens."""
    pacer = make(read_unasked_s=DELAY_S)
    pacer.begin_reading(SIZE, START)
    for now_s in (START, START + 100.0):
        pacer.unreachable(now_s, 0.5)
        assert rate(pacer, now_s + 50.0) is None
        pacer.answered(noted(plan=plan()), now_s + 50.0, now_s + 50.0)
        pacer.said(Action.REGISTER, now_s + 50.0)
        assert rate(pacer, now_s + 50.0) == 0
        assert at(pacer, now_s + 50.0) is Action.ASK_READ
    assert hear(pacer, grant(rate=9), START + 151.0) is Action.ASK_READ
    assert rate(pacer, START + 151.0) == 9
    assert pacer.reading.num_ungoverned == 1


def test_a_safe_rate_is_not_for_reading():
    """It is for writing: a restore in silence has nothing, then all."""
    pacer = make(read_unasked_s=DELAY_S, kept=plan(safe_after_s=1.0))
    pacer.unreachable(START, 1.0)
    pacer.begin_reading(SIZE, T)
    assert {rate(pacer, T + after_s) for after_s in (0.0, 5.0, 11.9)} == {0}


def test_without_a_coordinator_it_reads_at_once():
    """Nothing is said, nothing is counted."""
    pacer = make(local=True, read_unasked_s=DELAY_S)
    pacer.begin_reading(SIZE, T)
    assert rate(pacer, T) is None
    assert (at(pacer, T), pacer.reading.num_ungoverned) == (Action.NOTHING, 0)
    assert pacer.reading.governance is Governance.LOCAL
    pacer.reading.end(T + 1)
    assert pacer.reading.owed is None


# -- beside saves --------------------------------------------------------------------------------------------------


def test_no_save_is_asked_for_while_training_restores():
    """It is due, and asked for when the restore has ended and its lease is given back."""
    pacer = reading(now_s=T)
    now_s = T
    while now_s < pacer.due_s + 50.0:
        now_s += 20.0
        assert hear(pacer, grant(rate=100), now_s) is Action.RENEW_READ
    assert pacer.state is PacerState.DUE
    pacer.reading.read_through(now_s)
    hear(pacer, noted(), now_s)
    assert at(pacer, now_s) is Action.NOTHING
    pacer.reading.end(now_s)
    assert at(pacer, now_s) is Action.ASK


def test_no_save_begins_by_itself_while_training_restores():
    """Silence lets a due save go on without a lease: not before the restore has ended."""
    pacer = make(read_unasked_s=DELAY_S)
    pacer.unreachable(START, 1.0)
    pacer.begin_reading(SIZE, pacer.due_s - 1.0)
    pacer.tick(pacer.due_s)
    assert not pacer.wants_snapshot
    pacer.reading.end(pacer.due_s)
    pacer.tick(pacer.due_s)
    assert pacer.wants_snapshot


def test_a_flush_that_goes_on_comes_first():
    """One lease per job: it is asked to read when the save is released."""
    pacer = registered(read_unasked_s=DELAY_S)
    now_s = flushing(pacer)
    pacer.begin_reading(SIZE, now_s)
    assert at(pacer, now_s) is Action.RENEW
    pacer.answered(gone(), now_s, now_s)
    assert at(pacer, now_s) is Action.ASK
    pacer.answered(grant(rate=9), now_s, now_s)
    pacer.ended(now_s + 1, committed=True)
    assert at(pacer, now_s + 1) is Action.RELEASE
    pacer.said(Action.RELEASE, now_s + 1)
    assert at(pacer, now_s + 1) is Action.ASK_READ


def test_a_lease_to_save_is_let_go_where_nothing_was_snapshot_yet():
    """Training is about to load another state: asking to read says that nothing is held. The save stays due."""
    pacer = registered(read_unasked_s=DELAY_S)
    now_s = due(pacer)
    at(pacer, now_s)
    pacer.answered(grant(), now_s, now_s)
    assert pacer.wants_snapshot
    pacer.begin_reading(SIZE, now_s)
    assert not pacer.wants_snapshot
    assert hear(pacer, grant(rate=7), now_s) is Action.ASK_READ
    pacer.reading.end(now_s + 1)
    hear(pacer, noted(), now_s + 1)
    assert at(pacer, now_s + 1) is Action.ASK


def test_a_grant_to_save_that_was_on_its_way_is_not_taken():
    """The request to read that follows ends it."""
    pacer = registered(read_unasked_s=DELAY_S)
    now_s = due(pacer)
    assert at(pacer, now_s) is Action.ASK
    pacer.begin_reading(SIZE, now_s)
    pacer.answered(grant(), now_s, now_s)
    assert not pacer.wants_snapshot
    assert at(pacer, now_s) is Action.ASK_READ


# -- whatever happens ----------------------------------------------------------------------------------------------


ANSWERS = {"grant": grant(rate=50), "pause": grant(rate=0), "wait": wait(retry_after_s=2.0), "gone": gone()}


@pytest.mark.parametrize("seed", range(200))
def test_it_never_reads_without_a_right_and_never_waits_for_ever(seed):
    """Random answers, failures and pauses: a rate only from a live lease, all only in silence, which has an end."""
    rng = random.Random(seed)
    pacer, now_s = wanting(), T
    leased, until_s, is_silent = 0, -math.inf, False
    for _ in range(60):
        now_s += rng.choice((0.0, 0.3, 4.0, 20.0, 40.0))
        action = at(pacer, now_s)
        event = rng.choice(("grant", "pause", "gone" if action is Action.RENEW_READ else "wait", "lost"))
        if event == "lost":
            pacer.unreachable(now_s, rng.choice((0.0, 3.0)))
            is_silent = True
        elif action in (Action.ASK_READ, Action.RENEW_READ):
            hear(pacer, ANSWERS[event], now_s)
            leased, until_s, is_silent = getattr(ANSWERS[event], "bytes_per_s", 0), now_s + 29.0, False
        elif action is not Action.NOTHING:
            pacer.answered(noted(), now_s, now_s)
            is_silent = False
        allowed = rate(pacer, now_s)
        assert is_silent if allowed is None else allowed in (0, leased if now_s < until_s else 0)
    for _ in range(60):  # longer than a lease and the delay together
        pacer.unreachable(now_s, 5.0)
        now_s += 1.0
        pacer.tick(now_s)
    assert rate(pacer, now_s) is None
