"""When a waiter may get ready: room at the end of its lead time, on the pool as it will be then."""

import math
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rampmeter_coordinator.model import admission
from rampmeter_coordinator.model.admission import Writer
from rampmeter_coordinator.model.arming import ARM_AHEAD_S, Outlook
from rampmeter_coordinator.model.pool import PoolConfig

POOL = PoolConfig(name="pool", capacity_bytes_per_s=1250)
BUDGET = 1000
NOW = 1000.0


def room(look: Outlook, newcomer: Writer, lead_s: float) -> bool:
    """Whether there is room for it, should its first byte be in hand after `lead_s`."""
    return look.has_room_for(replace(newcomer, from_s=NOW + lead_s))


def writer(num_bytes: float = math.inf, most: int | None = None, *, in_s: float = 0.0) -> Writer:
    """One with so much to write, its first byte in hand `in_s` from now."""
    wanted = admission.wanted(most, BUDGET)
    least = admission.least(wanted)
    return Writer(wanted_bytes_per_s=wanted, least_bytes_per_s=least, bytes_left=num_bytes, from_s=NOW + in_s)


def outlook(*writers: Writer, rest: int = BUDGET, config: PoolConfig = POOL) -> Outlook:
    return Outlook(writers, rest, config, NOW)


def has_room(look: Outlook, lead_s: float, most: int | None = None) -> bool:
    return room(look, writer(most=most, in_s=lead_s), lead_s)


@pytest.mark.parametrize("lead_s", [0.0, 30.0])
def test_an_idle_pool_has_room(lead_s: float) -> None:
    """Whatever the lead time."""
    assert has_room(outlook(), lead_s)


def test_a_waiter_is_armed_as_its_room_appears() -> None:
    """The writer ends in 20 s: time for a lead of 19 s and more, too early for one of 18 s."""
    look = outlook(writer(20_000))
    assert has_room(look, 19.0)
    assert has_room(look, 30.0)
    assert not has_room(look, 18.0)
    assert look.first_end_s == NOW + 20.0


def test_room_that_is_gone_when_the_lead_is_over_is_no_room() -> None:
    """Free now, but somebody armed comes in 10 s and stays: nobody is armed beside it for 30 s later."""
    look = outlook(writer(100_000, in_s=10.0))
    assert not has_room(look, 30.0)
    assert has_room(look, 9.0)


def test_an_idle_pool_does_not_arm_everybody() -> None:
    """The first is armed; the second, as slow to get ready, only when the first will have ended by then."""
    look = outlook()
    assert has_room(look, 30.0)
    look.comes_next(writer(30_000, in_s=30.0))
    assert not has_room(look, 30.0)
    assert has_room(look, 60.0)


def test_a_short_lead_starts_into_room_that_a_long_one_cannot_use() -> None:
    """A lead of 90 s is armed and holds nothing yet: who has its first byte in hand starts now."""
    assert has_room(outlook(writer(10_000, in_s=90.0)), 0.0)


def test_one_who_is_ready_later_does_not_come_before() -> None:
    """Room appears 0.5 s after the first byte is in hand; the one ahead that needs 0.3 s more cannot take it first."""
    look = outlook(writer(20_000), writer(50_000, in_s=19.8))
    assert has_room(look, 19.5)
    assert not has_room(look, 19.9)


def test_waiters_ahead_take_their_room_first() -> None:
    """One writer ends in 5 s and its room goes to the waiter ahead, ready as soon; then nothing is left."""
    look = outlook(writer(5000))
    assert has_room(look, 10.0)
    look.comes_next(writer(50_000, in_s=0.0))
    assert not has_room(look, 10.0)


def test_an_unknown_size_never_ends() -> None:
    """Nobody is armed for the room of a save whose end is not known."""
    look = outlook(writer())
    assert not has_room(look, 3600.0)
    assert look.first_end_s == math.inf


def test_many_small_writers_give_room_one_by_one() -> None:
    """Three with 0.3 of the budget each leave a tenth; the fourth gets 0.3 when the first of them ends."""
    look = outlook(writer(30_000, 300), writer(6000, 300), writer(30_000, 300))
    assert has_room(look, 0.0, most=300)
    look.comes_next(writer(30_000, 300))
    assert not has_room(look, 18.0, most=300)
    assert has_room(look, 19.0, most=300)
    assert look.first_end_s == NOW + 20.0


def test_a_rate_not_worth_a_start_is_no_room() -> None:
    """50 of 1000 are left: nothing for one that could use 600, enough for one that could use 500."""
    look = outlook(writer(most=950))
    assert not has_room(look, 10.0, most=600)
    assert has_room(look, 10.0, most=500)


def test_somebody_is_armed_however_little_is_left() -> None:
    """With nobody else writing even a byte a second is room; none at all is not."""
    assert has_room(outlook(rest=1), 30.0)
    assert not has_room(outlook(rest=0), 30.0)


def test_max_writers_counts_those_who_write_then() -> None:
    """Of two places one is free in 10 s: the waiter is armed for it, the next one is not."""
    config = PoolConfig(name="pool", capacity_bytes_per_s=1250, max_writers=2)
    look = outlook(writer(1000, 100), writer(100_000, 100), config=config)
    assert not has_room(look, 5.0, most=100)
    assert has_room(look, 9.0, most=100)
    look.comes_next(writer(100_000, 100, in_s=9.0))
    assert not has_room(look, 9.0, most=100)


def test_a_tenant_at_its_cap_has_no_room() -> None:
    """Until one of its own ends; others have."""
    config = PoolConfig(name="pool", capacity_bytes_per_s=1250, max_tenant_bytes_per_s=300)
    look = outlook(replace(writer(6000, 300), tenant="a"), config=config)
    assert not room(look, replace(writer(most=300), tenant="a"), 10.0)
    assert room(look, replace(writer(most=300), tenant="a"), 19.0)
    assert room(look, replace(writer(most=300), tenant="b"), 0.0)


def test_one_who_comes_before_a_writer_may_push_it_out() -> None:
    """The armed one stands first: it leaves 50 of 1000, too little for the writer but enough for a small waiter."""
    look = outlook(writer(most=950, in_s=10.0), writer())
    assert has_room(look, 20.0, most=50)
    assert not has_room(look, 5.0, most=50)


def test_the_last_byte_on_a_fast_storage_does_not_stop_the_clock() -> None:
    """One byte at 800 GB/s takes less than a clock of a million seconds can tell apart."""
    fast = Writer(wanted_bytes_per_s=8 * 10**11, least_bytes_per_s=1, bytes_left=1.0)
    look = Outlook([fast], 8 * 10**11, POOL, 1e6)
    assert look.has_room_for(replace(fast, bytes_left=1e12, from_s=1e6 + 1.0))


# -- any pool, against a slow simulation in exact arithmetic -----------------------------------------------------------

TENANTS = st.sampled_from([None, None, "a", "b"])
SIZES = st.one_of(st.integers(1, 40_000).map(float), st.just(math.inf))
MAXIMA = st.sampled_from([None, 1, 50, 90, 300, 500, 950, 5000])
LEADS = st.sampled_from([0.0, 0.0, 1.7, 5.3, 5.3, 5.9, 20.9, 61.1])
WRITERS = st.lists(
    st.builds(
        lambda num_bytes, most, lead_s, tenant: replace(writer(num_bytes, most, in_s=lead_s), tenant=tenant),
        SIZES,
        MAXIMA,
        LEADS,
        TENANTS,
    ),
    max_size=6,
)
CONFIGS = st.builds(
    lambda most, cap: PoolConfig(
        name="pool", capacity_bytes_per_s=1250, max_writers=most, max_tenant_bytes_per_s=cap
    ),
    st.sampled_from([None, None, 1, 2, 3]),
    st.sampled_from([None, None, 100, 400]),
)
CLOSE_S = Fraction(1, 10**6)
"""What happens this close to the end of the look may fall on either side of it by rounding."""


def filled(writers: list[Writer], rest: int, config: PoolConfig) -> list[int]:
    """The rules of the fill once more, in the plainest words."""
    rates: list[int] = []
    for one in writers:
        of_tenant = sum(
            rate for other, rate in zip(writers, rates, strict=False) if other.tenant == one.tenant
        )
        rate = min(one.wanted_bytes_per_s, rest - sum(rates))
        if one.tenant is not None and config.max_tenant_bytes_per_s is not None:
            rate = min(rate, config.max_tenant_bytes_per_s - of_tenant)
        num_writing = sum(other > 0 for other in rates)
        too_many = config.max_writers is not None and num_writing >= config.max_writers
        too_little = num_writing > 0 and rate < one.least_bytes_per_s
        rates.append(0 if too_many or too_little else rate)
    return rates


def simulated(
    writers: list[Writer], newcomer: Writer, lead_s: float, rest: int, config: PoolConfig
) -> tuple[bool, Fraction]:
    """Whether the newcomer writes at any time in [lead, lead + 1 s], and how near to these two times anybody ends."""
    ready_s = Fraction(NOW + lead_s)
    until_s = Fraction(NOW + lead_s + ARM_AHEAD_S)
    before = [one for one in writers if one.from_s <= NOW + lead_s]
    left = {i: Fraction(one.bytes_left) for i, one in enumerate(before) if one.bytes_left < math.inf}
    at_s, closest_s = Fraction(NOW), Fraction(1)
    while at_s <= until_s:
        there = [i for i, one in enumerate(before) if one.from_s <= at_s and left.get(i, 1) > 0]
        *rates, own = filled([*(before[i] for i in there), newcomer], rest, config)
        starts_s = [Fraction(one.from_s) for one in before if one.from_s > at_s]
        ends_s = [at_s + left[i] / rate for i, rate in zip(there, rates, strict=True) if rate and i in left]
        next_s = min([*starts_s, *ends_s], default=until_s + 1)
        closest_s = min(
            [closest_s, *(abs(end_s - edge_s) for end_s in ends_s for edge_s in (ready_s, until_s))]
        )
        if own and next_s > ready_s:
            return True, closest_s
        for i, rate in zip(there, rates, strict=True):
            if i in left:
                left[i] -= rate * (next_s - at_s)
        at_s = next_s
    return False, closest_s


@settings(deadline=None, max_examples=400)
@given(WRITERS, MAXIMA, LEADS, TENANTS, st.sampled_from([0, 1, 40, 400, BUDGET]), CONFIGS)
def test_the_look_ahead_is_the_simulation(
    writers: list[Writer], most: int | None, lead_s: float, tenant: str | None, rest: int, config: PoolConfig
) -> None:
    """Whatever is in the pool: armed if, and only if, a rate is there when the lead time is over or a second later."""
    newcomer = replace(writer(most=most, in_s=lead_s), tenant=tenant)
    expected, closest_s = simulated(writers, newcomer, lead_s, rest, config)
    assume(closest_s > CLOSE_S)
    assert room(Outlook(writers, rest, config, NOW), newcomer, lead_s) is expected
    grown = Outlook((), rest, config, NOW)
    for one in writers:
        grown.comes_next(one)
    assert room(grown, newcomer, lead_s) is expected


@settings(deadline=None)
@given(WRITERS, st.sampled_from([0, 1, 400, BUDGET]), CONFIGS)
def test_the_first_end_is_that_of_those_who_write_now(
    writers: list[Writer], rest: int, config: PoolConfig
) -> None:
    """Infinite while nobody writes or no size is known."""
    there = [one for one in writers if one.from_s <= NOW]
    rates = filled(there, rest, config)
    ends_s = [NOW + one.bytes_left / rate for one, rate in zip(there, rates, strict=True) if rate]
    first_end_s = min(ends_s, default=math.inf)
    assert Outlook(writers, rest, config, NOW).first_end_s == first_end_s
    grown = Outlook((), rest, config, NOW)
    for one in writers:
        grown.comes_next(one)
    assert grown.first_end_s == first_end_s
