"""An attempt's own figures: measured ones replace beliefs, and one wild save moves none of them far."""

from dataclasses import replace

import pytest

from rampmeter.core.interval import DEFAULT_EPS
from rampmeter.figures import Figures
from rampmeter.throttle import FlowCounters
from support.scene import REPORT

MB = 1_000_000


def save(*, stall_s=0.2, write_s=10.0, throttled_s=0.0, rate=20 * MB):
    """A committed save at this speed of its own."""
    writing_s = write_s - throttled_s
    counters = FlowCounters(
        done_bytes=int(rate * writing_s), throttled_s=throttled_s, blocked_s=writing_s, busy_s=0.0
    )
    return replace(REPORT, stall_s=stall_s, write_s=write_s, counters=counters)


def learned(*saves, eps=None):
    figures = Figures()
    for one in saves:
        figures.learn(one, eps)
    return figures


def of(figures):
    return {
        "stall_s": figures.stall_s,
        "write_s": figures.write_s,
        "at_work_s": figures.at_work_s,
        "max_bytes_per_s": figures.max_bytes_per_s,
        "eps": figures.eps,
    }


def test_the_first_save_replaces_what_was_believed():
    """The stall of the warm-up was that of a busy start."""
    figures = Figures()
    figures.believe_stall(9.0)
    figures.learn(save(stall_s=0.2), None)
    figures.believe_stall(9.0)
    assert figures.stall_s == 0.2


def test_a_size_is_believed_only_where_none_is_known():
    """The second belief is no news."""
    figures = Figures()
    assert [figures.believe_size(1000), figures.believe_size(2000)] == [True, False]
    assert figures.num_bytes == 1000


@pytest.mark.parametrize("factor", [1000.0, 0.001])
def test_one_wild_save_moves_no_figure_to_more_than_twice_or_less_than_half(factor):
    """A pause of the machine, a storage that stood still, a clock that jumped."""
    usual = [save()] * 5
    figures = learned(*usual, eps=0.1)
    before = of(figures)
    wild = save(stall_s=0.2 * factor, write_s=10.0 * max(factor, 0.2), rate=20 * MB * factor)
    figures.learn(wild, min(1.0, 0.1 * factor))
    for name, value in of(figures).items():
        assert 0.5 <= value / before[name] <= 2.0, name


def test_what_lasts_is_followed():
    """Ten times as slow from now on: half of it after three saves, all of it but a tenth after ten."""
    slow = save(write_s=100.0)
    figures = learned(*[save()] * 5, *[slow] * 3)
    assert figures.write_s > 50.0
    for _ in range(7):
        figures.learn(slow, None)
    assert figures.write_s > 90.0


def test_a_figure_of_nothing_can_grow():
    """Twice nothing would be nothing for ever."""
    figures = learned(save(stall_s=0.0))
    for _ in range(20):
        figures.learn(save(stall_s=0.5), 0.0)
    assert figures.stall_s == pytest.approx(0.5, rel=0.1)


def test_sleep_in_the_bucket_is_no_time_at_work():
    """The write time counts it."""
    figures = learned(save(write_s=10.0, throttled_s=7.0))
    assert (figures.write_s, figures.at_work_s) == (10.0, 3.0)


def test_the_slow_down_begins_with_the_prior_and_follows_what_is_measured():
    """A save that says nothing of it leaves it as it is."""
    figures = learned(save())
    assert figures.eps == DEFAULT_EPS
    for _ in range(20):
        figures.learn(save(), 0.2)
    assert figures.eps == pytest.approx(0.2, rel=0.01)
