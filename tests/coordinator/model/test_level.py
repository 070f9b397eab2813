"""Pools that are not full: whoever comes or goes has all it could use, and nobody else hears of it."""

from rampmeter.core.messages import Grant, RateReason
from rampmeter_coordinator.model.level import Level
from support.desk import Desk, Talker

T = 1000.0
BUDGET = 1000


def _writers(desk: Desk, *rates: int) -> list[Talker]:
    """Jobs 1, 2, ... that write, each at its own maximal rate, and whose renewals are held."""
    jobs = [
        desk.writer(number, T, max_bytes_per_s=rate, num_bytes=10**6) for number, rate in enumerate(rates, 1)
    ]
    for job in jobs:
        job.renew(T, held=job.last.bytes_per_s if isinstance(job.last, Grant) else 0)
    for job in jobs:
        if job.answer is not None:
            job.hear()
            job.renew(T)
    return jobs


def test_who_comes_into_a_pool_that_is_not_full_has_its_rate_at_once_and_nobody_else_hears_of_it() -> None:
    """Two write; a third asks, is ready and ends: the renewals of the others stay held."""
    desk = Desk()
    others = _writers(desk, 200, 200)
    third = desk.known(3, T)
    assert isinstance(third.ask(T + 1, max_bytes_per_s=400, ready_in_s=5.0), Grant)
    assert isinstance(last := third.ready(T + 2), Grant)
    assert (last.bytes_per_s, last.reason) == (400, RateReason.FULL)
    third.release(T + 3)
    assert [other.answer for other in others] == [None, None]
    assert desk.rates(T + 3) == {1: 200, 2: 200}


def test_who_would_not_have_all_it_could_use_gets_what_is_left() -> None:
    """Armed ones count: the room that the third was promised is not the fourth's."""
    desk = Desk()
    _writers(desk, 200, 200)
    third, fourth = desk.known(3, T), desk.known(4, T)
    third.ask(T + 1, max_bytes_per_s=400, ready_in_s=1.0)
    fourth.ask(T + 1, max_bytes_per_s=400, ready_in_s=1.0)
    assert isinstance(fourth.last, Grant)
    third.ready(T + 2)
    assert isinstance(last := fourth.ready(T + 2), Grant)
    assert (last.bytes_per_s, last.reason) == (200, RateReason.SHARED)
    assert sum(desk.rates(T + 2).values()) == BUDGET


def test_who_ends_leaves_its_room() -> None:
    """Again and again, in a pool that two fill."""
    desk = Desk()
    jobs: list[Talker] = []
    for number in range(1, 20):
        jobs.append(desk.writer(number, T + number, max_bytes_per_s=BUDGET // 2))
        assert desk.rates(T + number)[number] == BUDGET // 2
        if number > 1:
            jobs[-2].release(T + number)


def test_a_claim_that_is_given_back_can_be_had_again() -> None:
    """The sum is exact."""
    level = Level(10)
    level.add("a", 6)
    assert (level.fits(4), level.fits(5), level.claim_of("a"), level.claim_of("b")) == (True, False, 6, None)
    level.remove("a")
    assert level.fits(10)


def test_who_has_its_rate_keeps_it_when_the_pool_fills_up() -> None:
    """The first was ready while there was room for all; the second could use more than is left, and is let in."""
    desk = Desk()
    first, second = desk.known(1, T), desk.known(2, T)
    first.ask(T + 1, max_bytes_per_s=400, num_bytes=10**6, ready_in_s=1.0)
    first.ready(T + 2)
    first.renew(T + 2.5, held=400)
    second.ask(T + 3, max_bytes_per_s=800, num_bytes=10**6, ready_in_s=5.0)
    assert isinstance(second.last, Grant)
    first.renew(T + 4, held=400)
    assert first.answer is None
    assert desk.rates(T + 4) == {1: 400, 2: 0}
