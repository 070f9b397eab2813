"""An answer is acknowledged once all writers of the job follow it, and not before."""

from rampmeter.core.messages import Renew
from rampmeter.core.pacer import Action
from rampmeter.throttle import Throttle
from support.answers import grant
from support.scene import Scene


class Slow(Throttle):
    """The throttle of a job whose ranks hear a new rate later."""

    is_followed = True


def writing(rate: int = 9_000) -> tuple[Scene, Slow]:
    """A save that writes at this rate; its first renewal is worded and answered with the same rate."""
    scene = Scene()
    scene.arm()
    flow = scene.throttle = Slow(clock=scene.clock)
    scene.desk.begin_snapshot(flow)
    scene.desk.first_byte(5000)
    scene.say(lambda seq: grant(seq, rate=rate))
    return scene, flow


def test_a_lowering_is_confirmed_when_all_ranks_have_it() -> None:
    """The next renewal waits for them; it carries the number of the answer that they follow."""
    scene, flow = writing()
    flow.is_followed = False
    lowered = scene.say(lambda seq: grant(seq, rate=100))
    assert scene.desk.advance() is Action.NOTHING
    assert scene.desk.wake_in() <= 0.02
    flow.is_followed = True
    assert scene.desk.advance() is Action.RENEW
    request, _ = scene.desk.word(Action.RENEW)
    assert isinstance(request, Renew)
    assert request.ack == lowered.seq


def test_a_rank_that_does_not_follow_holds_the_conversation_up_for_a_second() -> None:
    """Then the renewal goes out and confirms the answer before: the larger rate goes on to count."""
    scene, flow = writing()
    before = scene.say(lambda seq: grant(seq, rate=9_000))
    flow.is_followed = False
    scene.say(lambda seq: grant(seq, rate=100))
    scene.clock.advance(0.9)
    assert scene.desk.advance() is Action.NOTHING
    scene.clock.advance(0.2)
    assert scene.desk.advance() is Action.RENEW
    request, _ = scene.desk.word(Action.RENEW)
    assert request.ack == before.seq


def test_the_end_of_a_save_is_told_whether_they_follow_or_not() -> None:
    """A lease is given back at once, and what is said then confirms: nobody writes any more."""
    scene, flow = writing()
    flow.is_followed = False
    scene.say(lambda seq: grant(seq, rate=100))
    scene.end()
    assert scene.desk.advance() is Action.RELEASE


def test_the_first_byte_is_told_at_once() -> None:
    """The answer before it lowers nothing that somebody could be writing with."""
    scene = Scene()
    scene.arm()
    flow = scene.throttle = Slow(clock=scene.clock)
    flow.is_followed = False
    scene.desk.begin_snapshot(flow)
    scene.say(grant)
    scene.desk.first_byte(5000)
    assert scene.desk.advance() is Action.READY
