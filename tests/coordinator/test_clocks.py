"""What a standby may say of the leader's clock: bounds that hold whatever the delay was, or nothing."""

import pytest

from rampmeter_coordinator.clocks import MAX_DELAY_S, ClockSamples
from support.batches import candidate

D = 500.0
"""Own time minus the leader's."""


def samples(*delays_s):
    """Readings of a leader whose lease is renewed each second, each first seen so much later."""
    noted = ClockSamples()
    noted.note(candidate("a", now_s=1000.0), 1000.0 + D)
    for number, delay_s in enumerate(delays_s, start=1):
        read_s = 1000.0 + number
        noted.note(candidate("a", now_s=read_s - 1), read_s + delay_s - 0.1 + D)
        noted.note(candidate("a", now_s=read_s), read_s + delay_s + D)
    return noted


def test_the_offset_lies_between_the_bounds():
    """However long each reading was on its way, up to the longest delay there is."""
    for delays_s in ((0.0, 0.0, 0.0), (0.2, 0.01, 0.25), (0.9, 0.8, 0.7)):
        offset = samples(*delays_s).offset_of("boot")
        assert offset.earlier_s <= D <= offset.later_s
        assert offset.later_s - offset.earlier_s <= MAX_DELAY_S + max(delays_s)


def test_too_few_readings_say_nothing():
    """Who has just begun to stand by knows no clock."""
    assert samples(0.1, 0.1).offset_of("boot") is None
    assert samples(0.1, 0.1, 0.1).offset_of("boot") is not None


@pytest.mark.parametrize("boot_id", ["other", "unknown", ""])
def test_another_clock_is_not_known(boot_id):
    """Readings are of one boot of one machine."""
    assert samples(0.1, 0.1, 0.1).offset_of(boot_id) is None


def test_the_same_reading_seen_again_is_no_sample():
    """A lease that is not renewed ages: its reading says less with each look."""
    noted = samples(0.1, 0.1, 0.1)
    for number in range(5):
        noted.note(candidate("a", now_s=1003.0), 1003.1 + D + 0.25 * number)
    assert noted.offset_of("boot").later_s == pytest.approx(D + 0.1)


def test_a_reading_after_a_pause_is_no_sample():
    """A store that was away may give a renewal back that was sent long ago."""
    noted = samples(0.1, 0.1, 0.1)
    noted.note(candidate("a", now_s=1004.0), 1016.0 + D)
    assert noted.offset_of("boot").later_s == pytest.approx(D + 0.1)


def test_a_new_leader_on_another_machine_starts_anew():
    """What was learned of the old clock says nothing of the new one."""
    noted = samples(0.1, 0.1, 0.1)
    noted.note(candidate("b", now_s=7.0, boot_id="there"), 1003.5 + D)
    assert noted.offset_of("boot") is None
    assert noted.offset_of("there") is None


def test_a_clock_that_stood_still_is_believed_again_after_some_readings():
    """A paused leader moves the offset: the larger of the recent ones covers it from its first reading on."""
    noted = samples(0.1, 0.1, 0.1)
    noted.note(candidate("a", now_s=1003.0), 1004.7 + D)
    noted.note(candidate("a", now_s=1003.0), 1004.8 + D)
    noted.note(candidate("a", now_s=1004.0), 1004.9 + D)  # it stood still for 0.8 s
    assert noted.offset_of("boot").later_s >= D + 0.8
