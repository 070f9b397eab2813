"""Urgent saves: who is in time on the room that really appears, and who is dropped where not everybody can be."""

import dataclasses
import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rampmeter_coordinator.model import urgency
from rampmeter_coordinator.model.urgency import COMMIT_S, Rescue, Room

NOW = 1000.0
SLACK_BYTES = 1.0
"""What the fluid below may leave by rounding: the code rounds times, not bytes."""


def rescue(name: str, num_bytes: float, deadline_s: float, **more: object) -> Rescue:
    """An urgent save that must be durable `deadline_s` from now, its first byte in hand."""
    figures = {
        "uid": name,
        "num_bytes": num_bytes,
        "wanted_bytes_per_s": 1000,
        "from_s": NOW,
        "deadline_at_s": NOW + deadline_s,
        "at_risk_gpu_s": 100.0,
        "granted": False,
    }
    return Rescue(**(figures | more))


def room(bytes_per_s: int, after_s: float = 0.0) -> Room:
    return Room(at_s=NOW + after_s, bytes_per_s=bytes_per_s)


def refused(rescues: list[Rescue], rooms: list[Room]) -> dict[str, int]:
    return urgency.judge(rescues, rooms, NOW).fits_bytes


def test_what_ends_a_commit_before_the_deadline_fits() -> None:
    """10,000 bytes at 1000 bytes/s and a second for the commit: in time at 11 s, not at 10.5 s."""
    assert refused([rescue("a", 10_000, 11.0)], [room(1000)]) == {}
    assert refused([rescue("a", 10_000, 10.5)], [room(1000)]) == {"a": 9500}


def test_the_earliest_deadline_is_written_first() -> None:
    """Both fit one after the other in this order, whoever is named first and whoever has more at risk."""
    early, late = rescue("z", 5000, 6.0), rescue("a", 5000, 11.0, at_risk_gpu_s=900.0)
    assert refused([late, early], [room(1000)]) == {}
    assert urgency.written_in_time([early, late], [room(1000)], NOW) == [5000, 5000]
    assert urgency.written_in_time([late, early], [room(1000)], NOW) == [5000, 0]


def test_room_that_comes_back_later_counts_from_then_on() -> None:
    """Nothing for 20 s, until a lease has expired, then everything: 20 + 5 + 1 s."""
    assert refused([rescue("a", 5000, 26.0)], [room(1000, after_s=20.0)]) == {}
    assert refused([rescue("a", 5000, 25.0)], [room(1000, after_s=20.0)]) == {"a": 4000}


def test_a_lead_time_writes_nothing() -> None:
    """Who has its first byte in 8 s writes 2 s of the 10 that it has."""
    assert refused([rescue("a", 2500, 11.0, from_s=NOW + 8.0)], [room(1000)]) == {"a": 2000}


def test_nobody_writes_faster_than_it_can() -> None:
    """2000 bytes at 100 bytes/s are not in time however much room there is, and the rest is left to others."""
    slow, other = (
        rescue("a", 2000, 11.0, wanted_bytes_per_s=100),
        rescue("b", 9000, 11.0, at_risk_gpu_s=500.0),
    )
    assert refused([slow, other], [room(1100)]) == {"a": 1000}


def test_in_a_wave_the_least_gpu_time_at_risk_goes_without() -> None:
    """Three of four fit: the one with the least at risk is dropped, not the last and not the largest."""
    wave = [
        rescue(name, 3000, 10.0, at_risk_gpu_s=at_risk)
        for name, at_risk in (("a", 400.0), ("b", 100.0), ("c", 300.0), ("d", 200.0))
    ]
    assert refused(wave, [room(1000)]) == {"b": 0}


def test_who_is_dropped_for_others_is_told_what_they_leave_over() -> None:
    """It would have been written first, yet 6000 bytes of the others have to be: 3000 bytes are left for it."""
    cheap = rescue("a", 4000, 10.0, at_risk_gpu_s=1.0)
    dear = rescue("b", 6000, 10.0, at_risk_gpu_s=900.0)
    assert refused([cheap, dear], [room(1000)]) == {"a": 3000}


def test_room_is_not_promised_to_two_who_were_dropped() -> None:
    """What is left over goes to the one with more at risk first."""
    wave = [
        rescue("a", 8000, 10.0, at_risk_gpu_s=1.0),
        rescue("b", 8000, 10.0, at_risk_gpu_s=2.0),
        rescue("c", 6000, 10.0, at_risk_gpu_s=900.0),
    ]
    assert refused(wave, [room(1000)]) == {"b": 3000, "a": 0}


def test_who_was_granted_is_never_taken_back() -> None:
    """Neither for one with more at risk, nor because it will itself be late."""
    held = rescue("a", 9000, 10.0, granted=True, at_risk_gpu_s=0.0)
    assert refused([held, rescue("b", 9000, 10.5, at_risk_gpu_s=1e9)], [room(1000)]) == {"b": 500}
    late = rescue("a", 20_000, 10.0, granted=True)
    assert refused([late], [room(1000)]) == {}


def test_one_who_cannot_be_helped_takes_nobody_with_it() -> None:
    """A granted one that is late for lack of its own speed; who comes after it and fits is kept."""
    held = rescue("a", 9000, 5.0, granted=True, wanted_bytes_per_s=10)
    assert refused([held, rescue("b", 5000, 8.0)], [room(1000)]) == {}


def test_one_that_could_never_fit_takes_nobody_with_it() -> None:
    """However much it has at risk, and though its deadline is the last: the two that fit are kept."""
    huge = rescue("huge", 1e6, 20.0, at_risk_gpu_s=1e9)
    small = [rescue(name, 4000, 11.0, at_risk_gpu_s=1.0) for name in "ab"]
    assert refused([huge, *small], [room(1000)]) == {"huge": 11_000}
    held = rescue("held", 9000, 20.0, granted=True, wanted_bytes_per_s=10)
    assert refused([held, *small], [room(1000)]) == {}


def test_behind_one_that_is_late_anyway_nobody_is_kept_who_is_late() -> None:
    """A granted save that will be late does not end the look at the others."""
    held = rescue("a", 20_000, 10.0, granted=True)
    assert refused([held, rescue("b", 2000, 10.5)], [room(1000)]) == {"b": 500}


def test_a_notice_without_a_deadline_always_fits() -> None:
    """Where the notice told no time, the deadline is far away; an unknown size needs no bytes."""
    assert refused([rescue("a", 1e12, 1e10)], [room(1000)]) == {}
    assert refused([rescue("a", 0.0, 0.5)], []) == {}


def test_the_last_byte_on_a_fast_storage_does_not_stop_the_clock() -> None:
    """One byte at 800 GB/s takes less than a clock of a million seconds can tell apart."""
    fast = rescue("a", 1.0, 1e6, wanted_bytes_per_s=8 * 10**11)
    assert urgency.written_in_time([fast], [room(8 * 10**11)], 1e6) == [1.0]


# -- any wave, against a fluid in exact arithmetic ---------------------------------------------------------------------

WAVES = st.lists(
    st.builds(
        lambda name, num_bytes, wanted, lead_s, deadline_s, at_risk, granted: rescue(
            name,
            float(num_bytes),
            deadline_s / 4.0,
            wanted_bytes_per_s=wanted,
            from_s=NOW + lead_s / 4.0,
            at_risk_gpu_s=float(at_risk),
            granted=granted,
        ),
        st.uuids().map(str),
        st.integers(0, 20_000),
        st.integers(1, 2000),
        st.integers(0, 60),
        st.integers(1, 120),
        st.integers(0, 9),
        st.sampled_from([False, False, False, True]),
    ),
    min_size=1,
    max_size=7,
)
ROOMS = st.lists(
    st.builds(lambda rate, after_s: room(rate, after_s / 4.0), st.integers(0, 2000), st.integers(0, 100)),
    max_size=4,
)


def fluid(rescues: list[Rescue], rooms: list[Room]) -> list[Fraction]:
    """Bytes that each has when its time is over, the first with the first claim; exact, in steps of 1/4 s at most."""
    over_s = [Fraction(one.deadline_at_s) - Fraction(COMMIT_S) for one in rescues]
    left = [Fraction(one.num_bytes) for one in rescues]
    at_s = Fraction(NOW)
    while at_s < max(over_s):
        rest = sum(one.bytes_per_s for one in rooms if one.at_s <= at_s)
        rates = []
        for one, over_at_s, bytes_ in zip(rescues, over_s, left, strict=True):
            writes = one.from_s <= at_s < over_at_s and bytes_ > 0
            rates.append(min(one.wanted_bytes_per_s, rest) if writes else 0)
            rest -= rates[-1]
        until_next_quarter_s = Fraction(math.floor(at_s * 4) + 1, 4) - at_s
        ends_s = [bytes_ / rate for bytes_, rate in zip(left, rates, strict=True) if rate]
        step_s = min([until_next_quarter_s, *ends_s])
        left = [bytes_ - rate * step_s for bytes_, rate in zip(left, rates, strict=True)]
        at_s += step_s
    return [Fraction(one.num_bytes) - bytes_ for one, bytes_ in zip(rescues, left, strict=True)]


def by_deadline(rescues: list[Rescue]) -> list[Rescue]:
    return sorted(rescues, key=lambda one: (one.deadline_at_s, one.uid))


@settings(deadline=None, max_examples=60)
@given(WAVES, ROOMS)
def test_the_forecast_is_the_fluid(wave: list[Rescue], rooms: list[Room]) -> None:
    """To the byte, in any order of claims; never more than the rooms give."""
    written = urgency.written_in_time(wave, rooms, NOW)
    exact = fluid(wave, rooms)
    assert written == pytest.approx([float(bytes_) for bytes_ in exact], abs=SLACK_BYTES)
    last_s = max(one.deadline_at_s for one in wave) - COMMIT_S
    given_bytes = sum(one.bytes_per_s * max(0.0, last_s - one.at_s) for one in rooms)
    assert sum(written) <= given_bytes + SLACK_BYTES


def late(rescues: list[Rescue], rooms: list[Room]) -> set[str]:
    """Who misses more than rounding in the fluid."""
    written = fluid(by_deadline(rescues), rooms) if rescues else []
    pairs = zip(by_deadline(rescues), written, strict=True)
    return {one.uid for one, bytes_ in pairs if bytes_ < Fraction(one.num_bytes) - Fraction(SLACK_BYTES)}


@settings(deadline=None, max_examples=60)
@given(WAVES, ROOMS)
def test_whoever_is_kept_is_in_time(wave: list[Rescue], rooms: list[Room]) -> None:
    """In the fluid; no granted one is refused, and none is late that would not have been without the newcomers."""
    fits_bytes = refused(wave, rooms)
    granted = [one for one in wave if one.granted]
    assert not {one.uid for one in granted} & fits_bytes.keys()
    assert late([one for one in wave if one.uid not in fits_bytes], rooms) <= late(granted, rooms)


@settings(deadline=None, max_examples=60)
@given(WAVES, ROOMS)
def test_whoever_goes_without_could_not_have_been_added(wave: list[Rescue], rooms: list[Room]) -> None:
    """Beside those that are kept and have at least as much at risk, somebody would miss a byte."""
    fits_bytes = refused(wave, rooms)
    granted = [one for one in wave if one.granted]
    for dropped in (one for one in wave if one.uid in fits_bytes):
        dearer = [
            one
            for one in wave
            if one.granted or (one.uid not in fits_bytes and one.at_risk_gpu_s >= dropped.at_risk_gpu_s)
        ]
        tried = by_deadline([*dearer, dropped])
        missed = {
            one.uid for one, bytes_ in zip(tried, fluid(tried, rooms), strict=True) if bytes_ < one.num_bytes
        }
        assert not missed <= late(granted, rooms)


@settings(deadline=None, max_examples=60)
@given(WAVES, ROOMS)
def test_what_would_fit_is_there_beside_the_others(wave: list[Rescue], rooms: list[Room]) -> None:
    """Behind all that are kept, those that go without can write what they are told, all of them together."""
    fits_bytes = refused(wave, rooms)
    kept = by_deadline([one for one in wave if one.uid not in fits_bytes])
    without = [
        dataclasses.replace(one, num_bytes=float(fits_bytes[one.uid]))
        for one in wave
        if one.uid in fits_bytes
    ]
    without.sort(key=lambda one: (-one.at_risk_gpu_s, one.deadline_at_s, one.uid))
    if without:
        written = fluid([*kept, *without], rooms)[len(kept) :]
        assert all(
            bytes_ >= one.num_bytes - SLACK_BYTES for one, bytes_ in zip(without, written, strict=True)
        )
        assert all(fits_bytes[one.uid] <= one.num_bytes for one in wave if one.uid in fits_bytes)
