"""What is read back beside training, in the life of a job: out of the way of all else, one lease at a time. By hand."""

import pytest

from rampmeter.core.messages import GoneReason
from rampmeter.core.pacer import Action, Governance, PacerState
from support.answers import FENCE, gone, grant, noted, plan, wait
from support.pacing import START, at, due, make, registered

SIZE = 6_000
LOCAL = 50
T = START + 1.0


def wanting(**more):
    """A registered job that wants to read one back."""
    pacer = registered(**more)
    pacer.rereading.begin(SIZE, LOCAL)
    return pacer


def hear(pacer, answer, now_s):
    """What is to be said of it at `now_s` is said and answered."""
    action = at(pacer, now_s)
    assert action in (Action.ASK_REREAD, Action.RENEW_REREAD, Action.RELEASE_REREAD), action
    pacer.answered(answer, now_s, now_s, of_reread=True)
    pacer.said(action, now_s)
    pacer.tick(now_s)
    return action


def reading(rate=100, **more):
    pacer = wanting(**more)
    assert hear(pacer, grant(rate=rate), T) is Action.ASK_REREAD
    return pacer


def rate(pacer, now_s):
    pacer.tick(now_s)
    return pacer.rereading.allowance(now_s)[0]


def test_it_asks_and_reads_and_renews():
    """Nothing before the grant, then the rate of the lease up to its deadline."""
    pacer = wanting()
    assert rate(pacer, T) == 0
    assert hear(pacer, grant(rate=100), T) is Action.ASK_REREAD
    assert pacer.rereading.allowance(T) == (100, T + 30.0 - 1.0)
    assert at(pacer, T) is Action.RENEW_REREAD
    assert pacer.state is PacerState.IDLE


def test_a_save_that_becomes_due_ends_it_at_once():
    """Rate 0 and the lease given back before anything is asked for; afterwards it asks again."""
    pacer = reading(draw=0.1)
    hear(pacer, grant(rate=100), pacer.due_s - 0.1)
    now_s = due(pacer)
    assert rate(pacer, now_s) == 0
    assert pacer.rereading.fence is None
    assert hear(pacer, noted(), now_s) is Action.RELEASE_REREAD
    assert at(pacer, now_s) is Action.ASK


@pytest.mark.parametrize("steps", range(1, 5))
def test_nothing_is_asked_for_it_while_a_save_is_on_its_way(steps):
    """Due, waiting, armed, flushing."""
    pacer = wanting()
    now_s = due(pacer)
    moves = [
        pacer.asked,
        lambda: pacer.answered(grant(), now_s, now_s),
        lambda: pacer.begin_snapshot(now_s),
        lambda: (pacer.first_byte_in_hand(), pacer.answered(grant(rate=10), now_s, now_s)),
    ]
    for move in moves[:steps]:
        move()
        action = at(pacer, now_s)
        assert action not in (Action.ASK_REREAD, Action.RENEW_REREAD)
        assert rate(pacer, now_s) == 0


def test_after_the_save_it_goes_on():
    """When the lease of the save is given back."""
    pacer = wanting()
    now_s = due(pacer)
    pacer.asked()
    pacer.answered(grant(), now_s, now_s)
    pacer.begin_snapshot(now_s)
    pacer.first_byte_in_hand()
    pacer.answered(grant(rate=10), now_s, now_s)
    pacer.ended(now_s + 1, committed=True)
    assert at(pacer, now_s + 1) is Action.RELEASE
    pacer.said(Action.RELEASE, now_s + 1)
    assert hear(pacer, grant(rate=70), now_s + 1) is Action.ASK_REREAD
    assert rate(pacer, now_s + 1) == 70


def test_a_grant_that_comes_too_late_is_given_back():
    """A save has become due while it was on its way."""
    pacer = wanting(draw=0.1)
    assert at(pacer, pacer.due_s - 0.1) is Action.ASK_REREAD
    now_s = due(pacer)
    pacer.answered(grant(rate=100), now_s - 0.2, now_s, of_reread=True)
    assert rate(pacer, now_s) == 0
    assert pacer.rereading.owed == FENCE
    assert at(pacer, now_s) is Action.RELEASE_REREAD


def test_a_grant_that_comes_after_its_end_is_given_back():
    """The job was closed, or the checkpoint turned out to be damaged, while it was on its way."""
    pacer = wanting()
    assert at(pacer, T) is Action.ASK_REREAD
    pacer.rereading.end(T + 1)
    pacer.answered(grant(rate=100), T, T + 1, of_reread=True)
    assert at(pacer, T + 1) is Action.RELEASE_REREAD


def test_a_restore_goes_first():
    """Its GPUs idle."""
    pacer = reading()
    pacer.begin_reading(SIZE, T + 1)
    assert rate(pacer, T + 1) == 0
    assert hear(pacer, noted(), T + 1) is Action.RELEASE_REREAD
    assert at(pacer, T + 1) is Action.ASK_READ


def test_after_a_notice_not_even_the_release_comes_before_the_save():
    """Whoever asks for a slot says with it that nothing else is held."""
    pacer = reading()
    pacer.hurry(T + 1, deadline_at_s=T + 60)
    pacer.tick(T + 1)
    assert (rate(pacer, T + 1), at(pacer, T + 1)) == (0, Action.ASK)


def test_it_never_reads_without_a_lease_where_there_is_a_coordinator():
    """Silence, an hour of it: nobody waits for this read."""
    pacer = wanting()
    pacer.unreachable(T, 1.0)
    assert rate(pacer, T + 3600.0) == 0


def test_a_lease_that_lapses_ends_at_its_deadline_and_is_asked_for_again():
    """No safe rate: that is for writing."""
    pacer = reading(draw=0.9)
    assert rate(pacer, T + 28.9) == 100
    assert rate(pacer, T + 29.0) == 0
    assert at(pacer, T + 29.0) is not Action.RENEW_REREAD


@pytest.mark.parametrize("reason", list(GoneReason))
def test_a_lease_that_is_gone_is_asked_for_again(reason):
    """Rate 0 at once."""
    pacer = reading()
    hear(pacer, gone(reason=reason), T + 1)
    assert rate(pacer, T + 1) == 0
    assert hear(pacer, grant(rate=50), T + 2) is Action.ASK_REREAD


def test_wait_is_obeyed():
    """Asked again when the coordinator said so, and no sooner."""
    pacer = wanting(draw=0.9)
    hear(pacer, wait(retry_after_s=25.0), T)
    assert at(pacer, T + 10.0) is not Action.ASK_REREAD
    assert pacer.wake_at(T + 24.0) <= T + 25.0
    pacer.answered(noted(), T + 24.0, T + 24.0)
    assert at(pacer, T + 25.0) is Action.ASK_REREAD


def test_heartbeats_go_on():
    """It takes long, and training goes on meanwhile: every 15 s one, however often the lease is renewed."""
    pacer, beats, now_s = reading(draw=0.99), 0, T
    while now_s < T + 60.0:
        action = at(pacer, now_s)
        assert action in (Action.HEARTBEAT, Action.RENEW_REREAD)
        of_reread = action is Action.RENEW_REREAD
        beats += not of_reread
        pacer.answered(grant(rate=100) if of_reread else noted(), now_s, now_s, of_reread=of_reread)
        pacer.said(action, now_s)
        now_s += 5.0
    assert beats == 3


def test_when_it_is_read_the_lease_is_given_back():
    """Nothing is asked for any more."""
    pacer = reading()
    pacer.rereading.end(T + 1)
    assert hear(pacer, noted(), T + 1) is Action.RELEASE_REREAD
    assert at(pacer, T + 2) is Action.NOTHING


def test_without_a_coordinator_it_reads_at_its_own_rate_and_gives_way_all_the_same():
    """Nobody is asked; while a save is on its way nothing is read."""
    pacer = make(local=True)
    pacer.rereading.begin(SIZE, LOCAL)
    assert rate(pacer, T) == LOCAL
    assert at(pacer, T) is Action.NOTHING
    now_s = due(pacer)
    assert pacer.governance is Governance.LOCAL
    assert rate(pacer, now_s) == 0


def test_a_plan_keeps_coming():
    """Every answer may bring one."""
    pacer = wanting()
    at(pacer, T)
    pacer.answered(grant(rate=1, plan=plan(number=9)), T, T, of_reread=True)
    assert pacer.lease_clock.plan.number == 9
