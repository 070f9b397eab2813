"""The desk before an announced end, and when room is to be made: what is said, and who is told."""

import logging
from dataclasses import replace

import pytest

from rampmeter.core.errors import LeaseLost
from rampmeter.core.messages import GoneReason, Outcome, Release, SlotRequest, WaitReason
from rampmeter.core.notice import GiveUp
from rampmeter.core.pacer import Action
from rampmeter.events import RateChanged, SaveGivenUp
from support.answers import gone, grant, noted, wait
from support.scene import REPORT, Scene


def wont_fit(seq):
    """The coordinator's word that an urgent save would be too late."""
    return wait(seq, fits_bytes=4_000_000, reason=WaitReason.WILL_NOT_FIT)


def make_room(seq):
    """The coordinator's word that a save is to be given up."""
    return gone(seq, GoneReason.MAKE_ROOM)


def noticed():
    """A registered job that was told to go in 30 s."""
    scene = Scene()
    scene.register()
    scene.desk.notice()
    return scene


def told(scene):
    """What was given up, as whoever listens was told."""
    return [event for event in scene.events if isinstance(event, SaveGivenUp)]


def test_notice_leads_to_an_urgent_request():
    """A signal handler sets a flag; the next look asks for an urgent slot."""
    scene = noticed()
    asked, _ = scene.desk.word(scene.desk.advance())
    assert (scene.pokes, asked.urgent) == (1, True)


def test_each_urgent_request_says_what_is_left_of_the_notice():
    """Counted from the signal, not from the request: 30 s, of which 4 and then 25 are gone."""
    scene = noticed()
    scene.clock.advance(4.0)
    scene.desk.notice()  # signals come twice: SIGUSR1, then SIGTERM
    first = scene.say(lambda seq: wait(seq, retry_after_s=21.0))
    scene.clock.advance(21.0)
    second = scene.say(wait)
    assert (first.deadline_s, second.deadline_s) == (26.0, 5.0)
    assert (first.urgent, second.urgent) == (True, True)


def test_a_request_without_notice_has_no_deadline():
    """Nobody knows one."""
    scene = Scene()
    scene.register()
    scene.clock.advance(60.0)
    asked = scene.say(wait)
    assert isinstance(asked, SlotRequest)
    assert (asked.urgent, asked.deadline_s) == (False, None)


def test_a_save_that_will_not_fit_ends_the_wish_and_lets_training_stop(caplog):
    """No snapshot is wanted, training may leave its loop, one line and one event say why."""
    scene = noticed()
    scene.speech.figures.num_bytes = 9_000_000
    scene.clock.advance(1.0)
    scene.say(wont_fit)
    assert (scene.desk.ends_unsaved, scene.desk.wants_snapshot, scene.desk.owes_a_save) == (
        True,
        False,
        False,
    )
    scene.clock.advance(10.0)
    assert scene.desk.advance() is not Action.ASK
    assert [(e.reason, e.left_s, e.fits_bytes) for e in told(scene)] == [
        (GiveUp.WILL_NOT_FIT, 29.0, 4_000_000)
    ]
    announced, line = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert announced.startswith("a notice: the job ends in 30 s")
    for part in ("announced end in 29 s", "room for 4 MB of 9 MB", "RAMPMETER_NOTICE_S"):
        assert part in line


def test_after_the_wish_has_ended_no_request_counts_as_less_urgent_than_it():
    """A job that lives on asks like everybody else: its request is left with the coordinator."""
    scene = noticed()
    asked = scene.say(wont_fit)
    ordinary = replace(asked, urgent=False, deadline_s=None)
    assert not scene.desk.has_become_urgent(ordinary)
    fresh = noticed()
    fresh.desk.advance()
    assert fresh.desk.has_become_urgent(ordinary)


def test_a_flush_that_will_not_fit_stops_at_its_next_chunk():
    """It had begun before the notice; its lease has lapsed and there is no room for the rest."""
    scene = Scene()
    throttle = scene.flush()
    scene.desk.notice()
    scene.clock.advance(29.0)
    assert scene.desk.advance() is Action.ASK
    assert not scene.desk.ends_unsaved
    scene.say(wont_fit)
    assert throttle.abort_reason == GiveUp.WILL_NOT_FIT
    with pytest.raises(LeaseLost, match="will_not_fit"):
        throttle.take(1)
    scene.end(replace(REPORT, committed=False, reason="will_not_fit"))
    released = scene.say(noted)
    assert isinstance(released, Release)
    assert (released.outcome, released.write_s) == (Outcome.ABORTED, None)
    assert scene.desk.ends_unsaved


def test_the_last_moment_follows_from_what_was_measured():
    """400 MB at 40 MB/s and a second of lead time: 11 s before the end it is too late to begin."""
    scene = noticed()
    scene.speech.figures.num_bytes, scene.speech.figures.max_bytes_per_s = 400_000_000, 40_000_000
    scene.say(lambda seq: wait(seq, retry_after_s=100.0))
    scene.clock.advance(18.9)
    scene.desk.advance()
    assert told(scene) == []
    scene.clock.advance(0.1)
    scene.desk.advance()
    assert [(e.reason, round(e.left_s, 6), e.fits_bytes) for e in told(scene)] == [
        (GiveUp.TOO_LATE, 11.0, None)
    ]


def test_the_last_moment_comes_later_the_more_is_written():
    """Its lease lapses in the middle of the urgent flush: what is left of it is still in time, and is asked for."""
    scene = Scene()
    throttle = scene.flush()
    scene.speech.figures.num_bytes, scene.speech.figures.max_bytes_per_s = 400_000_000, 20_000_000
    scene.clock.advance(10.0)
    scene.desk.notice()
    scene.desk.advance()
    throttle.add_done(390_000_000)
    scene.clock.advance(19.0)
    scene.say(lambda seq: wait(seq, retry_after_s=1.0))
    scene.clock.advance(1.0)
    assert (scene.desk.advance(), told(scene)) == (Action.ASK, [])


def test_a_save_that_makes_room_stops_at_its_next_chunk_and_is_asked_for_anew(caplog):
    """Rate 0, aborted, released as aborted; then a request for a whole new save, at once."""
    scene = Scene()
    throttle = scene.flush()
    throttle.add_done(300)
    with caplog.at_level(logging.INFO, "rampmeter"):
        scene.say(make_room)
    assert [e.bytes_per_s for e in scene.events if isinstance(e, RateChanged)][-1] == 0
    assert throttle.abort_reason == GiveUp.MAKE_ROOM
    with pytest.raises(LeaseLost, match="make_room"):
        throttle.take(1)
    scene.end(replace(REPORT, committed=False, reason="make_room"))
    released, asked = scene.say(noted), scene.say(wait)
    assert (type(released), released.outcome) == (Release, Outcome.ABORTED)
    assert (type(asked), asked.started, asked.urgent) == (SlotRequest, False, False)
    assert [e.reason for e in told(scene)] == [GiveUp.MAKE_ROOM]
    assert any("need the storage" in message for message in caplog.messages)
    assert not scene.desk.ends_unsaved


def test_a_lease_taken_back_for_want_of_progress_is_asked_for_again():
    """Not a save to give up: it goes on with the bytes that are left."""
    scene = Scene()
    throttle = scene.flush()
    scene.speech.figures.num_bytes = 1000
    throttle.add_done(400)
    scene.say(lambda seq: gone(seq, GoneReason.NO_PROGRESS))
    asked = scene.say(lambda seq: grant(seq, rate=5))
    assert (asked.started, asked.num_bytes, throttle.abort_reason) == (True, 600, None)


def test_the_permit_carries_the_bound_on_writers():
    """As the grant said it."""
    scene = Scene()
    scene.register()
    scene.clock.advance(60.0)
    scene.say(lambda seq: grant(seq, max_streams=3))
    assert scene.begin_snapshot().max_streams == 3
