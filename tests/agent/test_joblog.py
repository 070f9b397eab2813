"""What a job reads of its interval: one line a change, in words that need no knowledge of the product."""

import logging

import pytest

from rampmeter.core.messages import PlanReason
from rampmeter.events import PlanChanged
from rampmeter.joblog import log_plan
from support.answers import noted, plan, wait
from support.scene import Scene

MARKET = {
    "price_gpu_s_per_byte": 8.368e-9,
    "bid_gpu_s_per_byte": 1.2e-10,
    "live_price_gpu_s_per_byte": 1.08e-8,
}
LINES = {
    PlanReason.OWN_PERIOD: (
        "next checkpoints every 58 min: the storage has room for it, and for this job this is where the least work is "
        "lost"
    ),
    PlanReason.PRICE: (
        "next checkpoints every 58 min: alone on this storage it would be every 5 min, but it is shared and has no "
        "room for all jobs that often; room for 1 TB costs 2.32 GPU-hours, this job bids 120 GPU-seconds for it now, "
        "the highest bid that waits is 3 GPU-hours"
    ),
    PlanReason.WRITE_FLOOR: (
        "next checkpoints every 58 min: to write one takes nearly that long, and the next must not begin before it is "
        "through"
    ),
    PlanReason.MINIMUM: (
        "next checkpoints every 58 min: more often would lose less work, but is not allowed (interval_min_s, or a "
        "limit of the pool)"
    ),
    PlanReason.BUDGET: (
        "next checkpoints every 58 min: the wished 5 min (interval_max_s) cannot be had while the storage is shared; "
        "room for 1 TB costs 2.32 GPU-hours, this job bids 120 GPU-seconds for it now, the highest bid that waits is "
        "3 GPU-hours"
    ),
    PlanReason.UNKNOWN: (
        "next checkpoints every 58 min: the coordinator gives a reason that this release does not know"
    ),
}


def told(scene, **fields):
    """The job is answered with a plan."""
    scene.clock.advance(15.0)
    scene.say(lambda seq: noted(seq, plan=plan(**fields)))


def changes(scene):
    return [event for event in scene.events if isinstance(event, PlanChanged)]


def plan_lines(caplog):
    return [message for message in caplog.messages if message.startswith("next checkpoints")]


@pytest.mark.parametrize("reason", PlanReason)
def test_each_reason_has_its_sentence(reason, caplog):
    """What decided the interval, and where the storage did, what room costs beside what this job bids."""
    with caplog.at_level(logging.INFO, "rampmeter"):
        log_plan(plan(interval_s=3480.0, request_after_s=300.0, reason=reason, **MARKET), 300.0)
    assert caplog.messages == [LINES[reason]]


def test_where_nobody_waits_there_is_no_bid_to_name(caplog):
    """Nor a wish where none was told."""
    with caplog.at_level(logging.INFO, "rampmeter"):
        log_plan(plan(reason=PlanReason.BUDGET, **MARKET | {"live_price_gpu_s_per_byte": 0.0}), None)
    assert caplog.messages[0].endswith("120 GPU-seconds for it now, no other job waits")
    assert "the wished (interval_max_s)" in caplog.messages[0]


def test_the_first_plan_and_each_other_interval_is_told_once(caplog):
    """Registered, told the same again, told a longer one."""
    scene = Scene()
    with caplog.at_level(logging.INFO, "rampmeter"):
        scene.register()
        told(scene, number=2, safe_bytes_per_s=1)
        told(scene, number=3, interval_s=350.0, reason=PlanReason.PRICE, **MARKET)
        told(scene, number=3, interval_s=350.0, reason=PlanReason.PRICE, **MARKET)
    assert [line.split(":")[0] for line in plan_lines(caplog)] == [
        "next checkpoints every 100 s",
        "next checkpoints every 6 min",
    ]
    assert [event.interval_s for event in changes(scene)] == [100.0, 350.0]


def test_the_event_has_the_figures_of_the_sentence():
    """For whoever draws them."""
    scene = Scene()
    scene.register()
    told(scene, number=2, interval_s=350.0, request_after_s=90.0, reason=PlanReason.PRICE, **MARKET)
    assert changes(scene)[-1] == PlanChanged(
        now_s=scene.clock.now(),
        interval_s=350.0,
        own_period_s=90.0,
        reason=PlanReason.PRICE,
        **MARKET,
    )


def test_a_plan_kept_from_the_last_attempt_is_no_news(caplog):
    """The coordinator says the same as before the restart: nothing has changed for this job."""
    scene = Scene()
    scene.pacer.lease_clock.remember(plan(), scene.clock.now())
    with caplog.at_level(logging.INFO, "rampmeter"):
        scene.register()
    assert (plan_lines(caplog), changes(scene)) == ([], [])


def test_an_answer_without_a_plan_says_nothing(caplog):
    """Most answers have none."""
    scene = Scene()
    scene.register()
    scene.clock.advance(60.0)
    with caplog.at_level(logging.INFO, "rampmeter"):
        scene.say(wait)
    assert (plan_lines(caplog), len(changes(scene))) == ([], 1)
