"""A restore of many ranks on rank 0: the newest rate, when all follow it, and the sum of what they read."""

from rampmeter.core.messages import Renew
from rampmeter.core.pacer import Action
from rampmeter.reading.beats import ReadWord
from rampmeter.reading.jobread import JobRead
from rampmeter.throttle import FlowCounters
from support.answers import grant
from support.scene import Scene

HALF = FlowCounters(done_bytes=2_500, throttled_s=3.0, blocked_s=2.0, busy_s=1.0)


def beat(flow: JobRead, now_s: float = 0.0, counters: FlowCounters = HALF) -> ReadWord:
    """One beat of all ranks."""
    word = flow.word(now_s)
    flow.beat_over(counters)
    return word


def test_nothing_is_read_before_a_rate_is_set() -> None:
    """And the newest is told, with the time that is left of it."""
    flow = JobRead()
    assert beat(flow) == ReadWord(bytes_per_s=0, left_s=None)
    flow.set_rate(5, 40.0)
    flow.set_rate(7, 50.0)
    assert beat(flow, now_s=30.0) == ReadWord(bytes_per_s=7, left_s=20.0)
    flow.set_rate(None)
    assert beat(flow) == ReadWord(bytes_per_s=None, left_s=None)


def test_a_rate_is_followed_when_the_beat_after_its_own_is_over() -> None:
    """Ranks set it between the two; that rank 0 has entered the next one says nothing of the others."""
    flow = JobRead()
    assert flow.is_followed
    flow.set_rate(5, 40.0)
    beat(flow)
    assert not flow.is_followed
    flow.word(0.0)
    assert not flow.is_followed
    flow.beat_over(HALF)
    assert flow.is_followed


def test_a_rate_that_comes_while_a_beat_goes_on_is_of_the_next() -> None:
    """It was not in the word."""
    flow = JobRead()
    flow.word(0.0)
    flow.set_rate(5, 40.0)
    flow.beat_over(HALF)
    beat(flow)
    assert not flow.is_followed
    beat(flow)
    assert flow.is_followed


def test_who_reads_no_more_follows_any_rate() -> None:
    """After the end nothing is waited for."""
    flow = JobRead()
    flow.set_rate(5, 40.0)
    flow.end()
    assert flow.is_followed


def test_the_first_reason_to_end_it_stands() -> None:
    """It is raised on all ranks."""
    flow = JobRead()
    assert flow.failure is None
    flow.abort("leaving")
    flow.abort("superseded")
    assert str(flow.failure) == "leaving"


def reading_together() -> tuple[Scene, JobRead]:
    """A desk with a lease for a restore of many ranks, which follow its rate."""
    scene, flow = Scene(), JobRead()
    scene.register()
    scene.desk.reader.steer_read(5_000, flow)
    scene.say(lambda seq: grant(seq, rate=1_000))
    beat(flow)
    beat(flow)
    return scene, flow


def test_the_coordinator_hears_what_all_ranks_have_read() -> None:
    """Not what rank 0 has."""
    scene, _ = reading_together()
    renewal, _ = scene.desk.word(scene.desk.advance())
    assert isinstance(renewal, Renew)
    assert (renewal.done_bytes, renewal.throttled_s, renewal.blocked_s, renewal.busy_s) == (
        2_500,
        3.0,
        2.0,
        1.0,
    )


def test_a_lowering_is_acknowledged_when_all_ranks_follow() -> None:
    """The next renewal waits for them, and not for ever."""
    scene, flow = reading_together()
    lowered = scene.say(lambda seq: grant(seq, rate=100))
    assert scene.desk.advance() is Action.NOTHING
    assert scene.desk.wake_in() <= 0.02
    beat(flow)
    assert scene.desk.advance() is Action.NOTHING
    beat(flow)
    assert scene.desk.advance() is Action.RENEW_READ
    assert scene.desk.word(Action.RENEW_READ)[0].ack == lowered.seq


def test_a_renewal_does_not_wait_for_ever_for_ranks_that_do_not_follow() -> None:
    """It is said a second later, and acknowledges what was followed before."""
    scene, _ = reading_together()
    lowered = scene.say(lambda seq: grant(seq, rate=100))
    scene.clock.advance(1.0)
    assert scene.desk.advance() is Action.RENEW_READ
    assert scene.desk.word(Action.RENEW_READ)[0].ack < lowered.seq
