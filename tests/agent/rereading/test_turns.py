"""What is read back beside training at the desk: what is said and what its cell allows, without a thread or network."""

import pytest

from rampmeter.core.errors import LeaseLost
from rampmeter.core.messages import FailReason, Kind, Outcome, Release, Renew, SlotRequest
from rampmeter.core.pacer import Action
from rampmeter.reading.turns import LEAVING
from rampmeter.rereading.turns import local_rate
from support.answers import FENCE, grant, noted
from support.scene import Scene

SIZE = 5_000


def reading(rate=1_000):
    scene = Scene()
    scene.register()
    throttle = scene.desk.reader.begin_reread(SIZE)
    return scene, throttle, scene.say(lambda seq: grant(seq, rate=rate))


def is_paused(scene, throttle):
    """Whether a byte has to wait."""
    scene.desk.advance()
    with throttle._lock:
        return throttle._rate_bytes_per_s == 0


def test_it_asks_to_read_in_the_background():
    """Its bytes are known, and the first one is in hand."""
    _, _, asked = reading()
    assert isinstance(asked, SlotRequest)
    assert (asked.kind, asked.background, asked.num_bytes, asked.ready_in_s) == (Kind.READ, True, SIZE, 0.0)
    assert (asked.started, asked.urgent) == (False, False)


def test_a_renewal_says_so_too():
    """A lease that is made anew after lost memory is in the background again."""
    scene, throttle, _ = reading()
    throttle.add_done(700)
    renewal, _ = scene.desk.word(scene.desk.advance())
    assert isinstance(renewal, Renew)
    assert (renewal.kind, renewal.background, renewal.fence) == (Kind.READ, True, FENCE)
    assert (renewal.held_bytes_per_s, renewal.done_bytes, renewal.num_bytes) == (1_000, 700, SIZE)


def test_the_cell_has_the_rate_of_the_lease():
    """Nothing before the grant, and nothing once a save is due; that asks after the release."""
    scene, throttle, _ = reading()
    throttle.take(100)
    assert scene.clock.now() == pytest.approx(1000.1, abs=0.01)
    scene.clock.advance(25.0)
    scene.say(noted)
    scene.say(lambda seq: grant(seq, rate=500))
    scene.clock.advance(25.0)
    assert is_paused(scene, throttle)
    release = scene.say(noted)
    assert isinstance(release, Release)
    assert (release.fence, release.outcome) == (FENCE, Outcome.ABORTED)
    assert scene.say(grant).kind is Kind.WRITE


def test_after_a_save_it_asks_for_what_is_left():
    """The same read goes on."""
    scene, throttle, _ = reading()
    throttle.add_done(700)
    scene.clock.advance(51.0)
    scene.say(noted)
    scene.say(grant)
    scene.begin_snapshot()
    scene.desk.first_byte(5000)
    scene.end()
    scene.say(noted)
    asked, _ = scene.desk.word(scene.desk.advance())
    while asked.__class__.__name__ == "Heartbeat":
        scene.desk.answered(Action.HEARTBEAT, noted(asked.seq), scene.clock.now())
        asked, _ = scene.desk.word(scene.desk.advance())
    assert (asked.kind, asked.background, asked.started, asked.num_bytes) == (
        Kind.READ,
        True,
        True,
        SIZE - 700,
    )


@pytest.mark.parametrize(("done_bytes", "outcome"), [(SIZE, Outcome.COMMITTED), (700, Outcome.ABORTED)])
def test_at_its_end_the_lease_is_given_back_with_what_was_read(done_bytes, outcome):
    """Of all of it, and of one that was damaged half-way."""
    scene, throttle, _ = reading()
    throttle.add_done(done_bytes)
    scene.desk.reader.end_reread()
    release = scene.say(noted)
    assert (release.fence, release.outcome, release.done_bytes) == (FENCE, outcome, done_bytes)
    assert scene.desk.advance() is Action.NOTHING


def test_goodbye_gives_the_lease_back():
    """Nobody waits for the reading thread."""
    scene, _, _ = reading()
    scene.desk.reader.reread_no_more("closing")
    assert [type(word).__name__ for word in scene.desk.last_words("finished")] == ["Release", "Finish"]


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (lambda desk: desk.notice(), LEAVING),
        (lambda desk: desk.stop("newer"), "superseded"),
        (lambda desk: desk.reader.reread_no_more("closing"), "closing"),
    ],
)
def test_the_end_of_the_attempt_ends_it_for_good(end, why):
    """Announced, taken over, closed: also one that would begin afterwards."""
    scene, throttle, _ = reading()
    end(scene.desk)
    scene.desk.advance()
    with pytest.raises(LeaseLost, match=why):
        throttle.take(1)
    with pytest.raises(LeaseLost, match=why):
        scene.desk.reader.begin_reread(SIZE).take(1)


def test_a_damaged_checkpoint_counts_as_a_save_that_failed():
    """Told with the next heartbeat."""
    scene = Scene()
    scene.register()
    scene.desk.reader.found_damaged()
    scene.clock.advance(16.0)
    beat = scene.say(noted)
    assert (beat.num_failed, beat.last_failure) == (1, FailReason.DAMAGED)


def test_without_a_coordinator_it_takes_twice_as_long_as_a_save():
    """Two seconds at least, also before the first save has told."""
    assert local_rate(1_000_000, 50.0) == 10_000
    assert local_rate(1_000_000, 0.1) == 500_000
    assert local_rate(1_000_000, None) == 500_000
    assert local_rate(0, None) == 1
    scene = Scene(local=True)
    throttle = scene.desk.reader.begin_reread(SIZE)
    throttle.take(SIZE)
    assert scene.clock.now() == pytest.approx(1002.0, abs=0.05)
