"""The desk: what training, flush and keeper say to each other, without any thread or network."""

import logging
from dataclasses import replace

import pytest

from rampmeter.core.errors import LeaseLost
from rampmeter.core.messages import EndReason, Finish, Outcome, Ready, Release, Renew, SlotRequest
from rampmeter.core.pacer import Action
from rampmeter.desk import CLAIM_CHECK_S
from rampmeter.events import RateChanged, SaveEnded
from support.answers import noted, plan
from support.scene import REPORT, Scene


def test_requests_count_up_and_acknowledge_the_last_answer_applied():
    """seq grows with every request; ack is the seq of the last answer."""
    scene = Scene()
    scene.register()
    scene.clock.advance(20.0)
    first, _ = scene.desk.word(Action.HEARTBEAT)
    second, _ = scene.desk.word(Action.HEARTBEAT)
    assert [(r.seq, r.ack) for r in (first, second)] == [(2, 1), (3, 1)]


def test_no_snapshot_without_a_grant():
    """begin_snapshot says None, and training goes on."""
    scene = Scene()
    scene.register()
    assert scene.begin_snapshot() is None


def test_a_snapshot_is_handed_out_once():
    """The second call while one is taken gets nothing."""
    scene = Scene()
    scene.arm()
    assert scene.desk.wants_snapshot
    assert scene.begin_snapshot() is not None
    assert scene.begin_snapshot() is None
    assert not scene.desk.wants_snapshot


def test_the_writer_gets_its_rate_with_the_grant_and_nothing_before():
    """Armed is rate 0; active is the rate until the deadline."""
    scene = Scene()
    throttle = scene.flush(rate=9_000)
    rates = [(e.bytes_per_s, e.until_s) for e in scene.events if isinstance(e, RateChanged)]
    sent_s = 1000.0 + 60.25
    assert rates[0][0] == 0
    assert rates[-1] == (9_000, sent_s + 30.0 - 1.0)
    throttle.set_rate(None)
    throttle.take(1)


def test_a_lapse_sets_the_writer_to_zero():
    """Whatever the reason: past the deadline the rate is 0."""
    scene = Scene()
    scene.flush()
    scene.clock.advance(29.0)
    assert scene.desk.advance() is Action.ASK
    last = [e for e in scene.events if isinstance(e, RateChanged)][-1]
    assert last.bytes_per_s == 0


def test_renewal_carries_what_is_held_and_done():
    """The rate that it holds and the flow counters."""
    scene = Scene()
    throttle = scene.flush(rate=9_000)
    throttle.add_done(700)
    renewal, _ = scene.desk.word(Action.RENEW)
    assert isinstance(renewal, Renew)
    assert (renewal.held_bytes_per_s, renewal.done_bytes) == (9_000, 700)


def test_release_reports_the_save():
    """Outcome, bytes, where the time went, stall, lead time and write time."""
    scene = Scene()
    scene.flush()
    scene.end()
    release = scene.say(noted)
    assert isinstance(release, Release)
    assert (release.outcome, release.done_bytes, release.step) == (Outcome.COMMITTED, 990, 40)
    assert (release.throttled_s, release.blocked_s, release.busy_s) == (3.0, 0.5, 0.2)
    assert (release.stall_s, release.lead_s, release.write_s) == (0.2, 0.25, 4.0)


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [("enospc", Outcome.FAILED), ("lease_lost", Outcome.ABORTED), ("superseded", Outcome.ABORTED)],
)
def test_a_save_that_failed_teaches_nothing(reason, outcome):
    """No write time in the release, no figures kept."""
    scene = Scene()
    scene.flush()
    scene.end(replace(REPORT, committed=False, reason=reason))
    release = scene.say(noted)
    assert (release.outcome, release.write_s, scene.speech.figures.write_s) == (outcome, None, None)


def test_a_slot_request_after_a_lapse_says_what_is_left():
    """started, first byte in hand, bytes still to write."""
    scene = Scene()
    throttle = scene.flush()
    scene.speech.figures.num_bytes = 1000
    throttle.add_done(400)
    scene.clock.advance(29.0)
    asked, _ = scene.desk.word(scene.desk.advance())
    assert isinstance(asked, SlotRequest)
    assert (asked.started, asked.ready_in_s, asked.num_bytes) == (True, 0.0, 600)


def test_size_is_told_by_registering_once_more():
    """The first state that is seen gives the cold-start bytes."""
    scene = Scene()
    scene.register()
    scene.desk.size_known(5000)
    request = scene.say(lambda seq: noted(seq, plan=plan()))
    assert (type(request).__name__, request.num_bytes) == ("Register", 5000)


def test_a_writer_without_lease_reads_the_newest_claim_before_the_first_byte():
    """Rate 0 until the claim was read, and again when that was long ago."""
    scene = Scene()
    scene.desk.not_answered(1.0, "gone")
    scene.clock.advance(20.0)
    scene.desk.advance()
    scene.begin_snapshot()
    throttle = scene.throttle
    scene.desk.first_byte(5000)
    rates = [e.bytes_per_s for e in scene.events if isinstance(e, RateChanged)]
    assert rates == []
    assert scene.desk.claim_check_is_due()
    scene.desk.claim_checked()
    assert not scene.desk.claim_check_is_due()
    assert [e.bytes_per_s for e in scene.events if isinstance(e, RateChanged)] == [None]
    throttle.take(10)
    scene.clock.advance(2 * CLAIM_CHECK_S)
    scene.desk.advance()
    assert [e.bytes_per_s for e in scene.events if isinstance(e, RateChanged)] == [None, 0]


def test_a_newer_attempt_stops_the_writer_before_its_next_chunk():
    """stop() aborts the flush in progress and wants no more snapshots."""
    scene = Scene()
    throttle = scene.flush()
    scene.desk.stop("newer")
    with pytest.raises(LeaseLost, match="superseded"):
        throttle.take(1)
    assert scene.desk.stopped


def test_last_words_give_the_lease_back_and_say_goodbye():
    """At the end of the job: release if one is owed, then finish."""
    scene = Scene()
    scene.flush()
    scene.end()
    words = scene.desk.last_words(EndReason.PREEMPTED)
    assert [type(word) for word in words] == [Release, Finish]
    assert words[1].reason is EndReason.PREEMPTED


def test_an_attempt_that_never_registered_says_no_goodbye():
    """There is nobody to say it to."""
    assert Scene().desk.last_words(EndReason.FINISHED) == []


def test_an_ungoverned_save_is_told_in_the_heartbeat():
    """Counted, with the step and the age of what is durable."""
    scene = Scene()
    scene.desk.not_answered(1.0, "gone")
    scene.clock.advance(20.0)
    scene.desk.advance()
    scene.begin_snapshot()
    scene.desk.first_byte(5000)
    scene.end()
    scene.desk.advance()
    beat, _ = scene.desk.word(Action.HEARTBEAT)
    assert (beat.num_ungoverned, beat.committed_step, beat.commit_age_s) == (1, 40, 4.0)
    assert [e.governance for e in scene.events if isinstance(e, SaveEnded)] == ["ungoverned"]


def test_a_job_reads_in_its_log_what_was_saved(caplog):
    """At INFO: the checkpoint that a run goes on from, and each new one with what it cost."""
    scene = Scene()
    scene.flush()
    with caplog.at_level(logging.INFO, "rampmeter"):
        scene.desk.restored(12, load_s=3.0, rolled_back=False)
        scene.end()
    assert caplog.messages == [
        "training goes on from the checkpoint of step 12",
        "step 40 is saved: 1 KB in 4 s, training stood still for 200 ms",
    ]


def test_a_coordinator_of_no_use_is_named_with_the_pool(caplog):
    """It may well answer, as with a pool that it does not have; said once, not at every try."""
    scene = Scene()
    for _ in range(2):
        scene.desk.not_answered(1.0, "404 no such pool")
    assert caplog.messages == ["no usable answer from the coordinator (pool default): 404 no such pool"]


def test_the_size_of_this_save_is_told_with_its_first_byte():
    """Before the optimizer's first step a state had a third of its bytes: others were let in for the wrong moment."""
    scene = Scene()
    scene.desk.size_known(1000)
    scene.arm()
    scene.begin_snapshot()
    scene.desk.first_byte(3000)
    request, _ = scene.desk.word(Action.READY)
    assert isinstance(request, Ready)
    assert request.num_bytes == 3000


def test_a_state_without_tensors_does_not_make_the_size_unknown_again():
    """What the last save had is the best guess; its plan counts tensors only."""
    scene = Scene()
    scene.desk.size_known(1000)
    scene.arm()
    scene.begin_snapshot()
    scene.desk.first_byte(0)
    assert scene.speech.figures.num_bytes == 1000
