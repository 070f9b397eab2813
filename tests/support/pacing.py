"""A pacer driven by hand: events in, what to say and whether to snapshot out."""

from rampmeter.core.leaseclock import LeaseClock
from rampmeter.core.pacer import Action, Pacer, PacerState
from support.answers import grant, noted, plan

START = 1000.0


def make(*, local=False, draw=0.5, own_period_s=40.0, kept=None, looks_first=False, read_unasked_s=0.0):
    clock = LeaseClock()
    if kept is not None:
        clock.remember(kept, START)
    return Pacer(
        clock,
        now_s=START,
        draw=draw,
        own_period_s=own_period_s,
        local=local,
        looks_first=looks_first,
        read_unasked_s=read_unasked_s,
    )


def at(pacer, now_s):
    pacer.tick(now_s)
    return pacer.next_action(now_s)


def say(pacer, answer, now_s, sent_s=None):
    """Whatever the pacer wants to say at `now_s` is said and answered."""
    action = at(pacer, now_s)
    pacer.answered(answer, now_s if sent_s is None else sent_s, now_s)
    pacer.said(action, now_s)
    pacer.tick(now_s)
    return action


def registered(**more):
    pacer = make(**more)
    assert say(pacer, noted(plan=plan()), START) is Action.REGISTER
    return pacer


def due(pacer):
    pacer.tick(pacer.due_s)
    return pacer.due_s


def flushing(pacer):
    """Bring a registered pacer to FLUSHING; returns the time."""
    now_s = due(pacer)
    say(pacer, grant(), now_s)
    pacer.begin_snapshot(now_s)
    pacer.first_byte_in_hand()
    assert say(pacer, grant(rate=9), now_s) is Action.READY
    assert pacer.state is PacerState.FLUSHING
    return now_s


def hurry(pacer, now_s, *, notice_s=120.0, need_s=0.0):
    """A notice: the job ends in `notice_s`; from a grant to durable it needs `need_s`."""
    pacer.hurry(now_s, deadline_at_s=now_s + notice_s)
    pacer.set_need(need_s)
