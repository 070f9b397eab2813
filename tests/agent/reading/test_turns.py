"""A restore at the desk: what is said, what its cell allows and what is told, without any thread or network."""

import logging

import pytest

from rampmeter.core.errors import LeaseLost
from rampmeter.core.messages import Heartbeat, Kind, Outcome, Release, Renew, SlotRequest
from rampmeter.core.pacer import Action, Governance
from rampmeter.events import RestoreRateChanged, RestoreWaits
from rampmeter.reading.turns import LEAVING
from support.answers import FENCE, gone, grant, noted, plan
from support.scene import Scene

SIZE = 5_000


def rates(scene):
    return [(e.bytes_per_s, e.governance) for e in scene.events if isinstance(e, RestoreRateChanged)]


def reading(rate=1_000):
    scene = Scene()
    scene.register()
    throttle = scene.desk.reader.begin_read(SIZE)
    return scene, throttle, scene.say(lambda seq: grant(seq, rate=rate))


def test_it_asks_to_read_with_its_bytes_and_the_first_one_in_hand():
    """GPUs idle: nothing has to be prepared."""
    _, _, asked = reading()
    assert isinstance(asked, SlotRequest)
    assert (asked.kind, asked.num_bytes, asked.ready_in_s) == (Kind.READ, SIZE, 0.0)
    assert (asked.started, asked.urgent) == (False, False)


def test_the_cell_has_the_rate_of_the_lease_and_nothing_before():
    """0 before the grant, the rate with it, 0 when it has lapsed, all told; its last word is 0."""
    scene, throttle, _ = reading()
    throttle.take(100)
    assert scene.clock.now() == pytest.approx(1000.1, abs=0.01)
    scene.clock.advance(29.0)
    scene.desk.advance()
    scene.say(lambda seq: grant(seq, rate=500))
    scene.desk.reader.end_read()
    lease = Governance.LEASE
    assert rates(scene) == [(1_000, lease), (0, lease), (500, lease), (0, lease)]


def test_a_renewal_tells_what_is_held_and_read():
    """Of a read: a lease that is made anew after lost memory is one."""
    scene, throttle, _ = reading()
    throttle.add_done(700)
    renewal, _ = scene.desk.word(scene.desk.advance())
    assert isinstance(renewal, Renew)
    assert (renewal.kind, renewal.fence, renewal.num_bytes) == (Kind.READ, FENCE, SIZE)
    assert (renewal.held_bytes_per_s, renewal.done_bytes) == (1_000, 700)


def test_after_a_lease_that_is_gone_it_asks_for_what_is_left():
    """The same restore goes on."""
    scene, throttle, _ = reading()
    throttle.add_done(700)
    scene.say(gone)
    asked, _ = scene.desk.word(scene.desk.advance())
    assert isinstance(asked, SlotRequest)
    assert (asked.kind, asked.started, asked.num_bytes) == (Kind.READ, True, SIZE - 700)


@pytest.mark.parametrize(("done_bytes", "outcome"), [(SIZE, Outcome.COMMITTED), (700, Outcome.ABORTED)])
def test_the_lease_is_given_back_with_what_was_read(done_bytes, outcome):
    """Of all of it, and of a restore that was interrupted."""
    scene, throttle, _ = reading()
    throttle.add_done(done_bytes)
    scene.desk.reader.end_read()
    release = scene.say(noted)
    assert isinstance(release, Release)
    assert (release.fence, release.outcome, release.done_bytes) == (FENCE, outcome, done_bytes)
    assert scene.desk.advance() is Action.NOTHING


def test_the_desk_wakes_its_keeper_when_there_is_something_to_say():
    """At the beginning, when all is read, and at the end."""
    scene = Scene()
    scene.register()
    pokes, reader = [], scene.desk.reader
    for happens in (lambda: reader.begin_read(SIZE), reader.read_through, reader.end_read):
        before = scene.pokes
        happens()
        pokes.append(scene.pokes - before)
    assert pokes == [1, 1, 1]


def test_goodbye_gives_the_lease_back():
    """Where nothing could be said between the end of the restore and the end of the job."""
    scene, _, _ = reading()
    scene.desk.reader.end_read()
    assert [type(word).__name__ for word in scene.desk.last_words("failed")] == ["Release", "Finish"]


def test_an_announced_end_ends_the_restore():
    """Nobody trains what it would load."""
    scene, throttle, _ = reading()
    scene.desk.notice()
    scene.desk.advance()
    with pytest.raises(LeaseLost, match=LEAVING):
        throttle.take(1)


def test_a_restore_that_begins_after_the_notice_ends_at_once():
    """As one that is going on."""
    scene = Scene()
    scene.register()
    scene.desk.notice()
    with pytest.raises(LeaseLost, match=LEAVING):
        scene.desk.reader.begin_read(SIZE).take(1)


def test_a_newer_attempt_ends_the_restore_of_an_older_one():
    """stop() lets nothing more in."""
    scene, throttle, _ = reading()
    scene.desk.stop("newer")
    with pytest.raises(LeaseLost, match="superseded"):
        throttle.take(1)


def test_silence_is_waited_out_and_told_and_counted(caplog):
    """The heartbeat after it has the restore among what was done without a lease."""
    caplog.set_level(logging.INFO, logger="rampmeter")
    scene = Scene()
    scene.desk.not_answered(5.0, "gone")
    throttle = scene.desk.reader.begin_read(SIZE)
    scene.desk.advance()
    throttle.take(10_000_000)
    assert rates(scene) == [(None, Governance.UNGOVERNED)]
    assert scene.desk.num_ungoverned == 1
    told = "no coordinator gives a read slot in pool default: the checkpoint of 5 KB is read without one"
    assert told in caplog.messages
    scene.desk.reader.end_read()
    heartbeat, _ = scene.desk.word(Action.HEARTBEAT)
    assert isinstance(heartbeat, Heartbeat)
    assert heartbeat.num_ungoverned == 1


def test_a_long_wait_is_told_to_whoever_listens():
    """Once, in words, and the desk wakes for it."""
    scene = Scene()
    scene.register()
    scene.desk.reader.begin_read(SIZE)
    assert scene.desk.wake_in() <= 1.0
    for _ in range(3):
        scene.clock.advance(1.0)
        scene.desk.advance()
    told = [event.why for event in scene.events if isinstance(event, RestoreWaits)]
    assert told == ["the coordinator gives one as soon as there is room"]


def test_a_restore_behind_a_flush_of_its_own_job_says_so():
    """It is asked for when the save is released."""
    scene = Scene()
    scene.flush()
    scene.desk.reader.begin_read(SIZE)
    for _ in range(2):
        scene.clock.advance(1.0)
        scene.desk.advance()
    assert [event.why for event in scene.events if isinstance(event, RestoreWaits)] == [
        "a save of this job is still being written"
    ]
    scene.end()
    assert isinstance(scene.say(noted), Release)
    assert isinstance(scene.say(lambda seq: grant(seq, rate=9)), SlotRequest)


def test_what_is_read_after_the_end_waits_for_nobody():
    """The cell is looked after by nobody from then on."""
    scene, throttle, _ = reading(rate=1)
    scene.desk.reader.read_through()
    throttle.take(10**9)
    assert scene.clock.now() == 1000.0


def test_a_plan_that_comes_with_the_slot_is_taken():
    """As with any answer."""
    scene = Scene()
    scene.register()
    scene.desk.reader.begin_read(SIZE)
    scene.say(lambda seq: grant(seq, rate=9, plan=plan(number=2, interval_s=77.0)))
    assert scene.desk.plan.interval_s == 77.0
