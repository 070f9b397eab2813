"""How a figure follows its samples, and what counts until there are some."""

import dataclasses

import pytest

from rampmeter.core.interval import DEFAULT_EPS
from rampmeter.core.messages import Outcome
from rampmeter_coordinator.model import planning
from rampmeter_coordinator.model.estimates import followed
from rampmeter_coordinator.model.records import Job
from rampmeter_coordinator.model.views import Estimate, Figures
from support.desk import Desk, Talker

T = 1000.0


def figures(desk: Desk, now_s: float) -> Figures:
    return desk.ledger.job_views(now_s)[0].figures


def record(desk: Desk) -> Job:
    (job,) = desk.ledger._state.jobs.values()
    return job


def save(job: Talker, now_s: float, **words: float) -> None:
    """A save of 100 s that is committed at `now_s` + 100."""
    job.heartbeat(now_s)
    job.ask(now_s, ready_in_s=0.0)
    job.release(now_s + 100, **words)


@pytest.mark.parametrize("sample", [0.0, 1e-9, 1e3, 1e10])
def test_one_wild_sample_moves_a_figure_by_a_factor_of_two_at_most(sample: float) -> None:
    """Up and down."""
    assert 5.0 <= followed(10.0, sample) <= 20.0


def test_a_sample_that_is_not_far_off_is_smoothed() -> None:
    """It weighs 0.3."""
    assert followed(10.0, 15.0) == pytest.approx(11.5)
    assert followed(10.0, 6.0) == pytest.approx(8.8)


@pytest.mark.parametrize("factor", [10.0, 0.1])
def test_a_tenfold_change_is_followed_within_three_saves(factor: float) -> None:
    """As near as a plan's dead band asks: the interval goes with the square root."""
    known = 10.0
    for _ in range(3):
        known = followed(known, 10.0 * factor)
    assert known / (10.0 * factor) == pytest.approx(1.0, abs=0.25)


def test_what_was_nothing_can_grow() -> None:
    """Below a tenth of a second a factor says nothing."""
    known = 0.0
    for _ in range(8):
        known = followed(known, 10.0)
    assert known == pytest.approx(10.0, rel=0.2)


def test_the_first_sample_replaces_what_was_believed() -> None:
    """However far off the belief was."""
    desk = Desk()
    job = desk.known(1, T, stall_s=1.0)
    save(job, T, stall_s=40.0, write_s=80.0, lead_s=5.0, throttled_s=60.0)
    found = figures(desk, T + 100)
    assert found.stall_s == Estimate(value=40.0, num_samples=1)
    assert found.write_s == Estimate(value=80.0, num_samples=1)
    assert found.at_work_s == Estimate(value=20.0, num_samples=1)
    assert found.lead_s == Estimate(value=5.0, num_samples=1)


def test_every_figure_counts_its_own_samples() -> None:
    """A release that says nothing of a figure is no sample of it; what is only believed has none."""
    desk = Desk()
    job = desk.known(1, T, stall_s=3.0)
    save(job, T, write_s=10.0)
    save(job, T + 200, write_s=10.0, eps=0.02)
    found = figures(desk, T + 300)
    assert found.stall_s == Estimate(value=3.0, num_samples=0)
    assert (found.write_s.num_samples, found.num_bytes.num_samples) == (2, 2)
    assert (found.eps.num_samples, found.lead_s.num_samples) == (1, 0)


def test_what_is_no_longer_said_is_no_longer_believed() -> None:
    """A new attempt that gives no stall and no write time has none until it is measured."""
    desk = Desk()
    job = desk.known(1, T, stall_s=3.0, write_s=7.0)
    assert (figures(desk, T).stall_s.value, figures(desk, T).write_s.value) == (3.0, 7.0)
    job.next_attempt().register(T + 200, stall_s=None, write_s=None)
    assert (figures(desk, T + 200).stall_s.value, figures(desk, T + 200).write_s.value) == (None, None)


def test_a_belief_never_replaces_what_was_measured() -> None:
    """Figure by figure: what no save has told of yet is still believed."""
    desk = Desk()
    job = desk.known(1, T, stall_s=3.0, write_s=7.0)
    save(job, T, done_bytes=8_000, write_s=10.0)
    job.next_attempt().register(T + 200, num_bytes=5, stall_s=4.0, write_s=99.0)
    found = figures(desk, T + 200)
    assert (found.num_bytes.value, found.stall_s.value, found.write_s.value) == (8_000, 4.0, 10.0)


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.ABORTED])
def test_what_was_not_committed_is_no_sample(outcome: Outcome) -> None:
    """Of no figure."""
    desk = Desk()
    job = desk.known(1, T)
    before = figures(desk, T)
    job.ask(T, ready_in_s=0.0)
    job.release(T + 10, outcome, done_bytes=7, stall_s=2.0, write_s=9.0, lead_s=1.0, eps=0.5)
    assert figures(desk, T + 10) == before


def test_eps_begins_with_its_prior() -> None:
    """A few samples are blended with it, many replace it, and it costs what it was measured to."""
    desk = Desk()
    job = desk.known(1, T, stall_s=1.0)
    assert figures(desk, T).eps == Estimate(value=DEFAULT_EPS, num_samples=0)
    save(job, T, stall_s=1.0, write_s=50.0, eps=0.03)
    assert figures(desk, T + 100).eps.value == pytest.approx(0.023)
    for number in range(1, 15):
        save(job, T + 200 * number, stall_s=1.0, write_s=50.0, eps=0.03)
    assert figures(desk, T + 3000).eps.value == pytest.approx(0.03, rel=0.01)
    record(desk).load = None
    assert planning.load_of(record(desk)).cost_s == pytest.approx(1.0 + 0.03 * 50.0, rel=0.01)


def test_a_wild_eps_moves_what_a_save_costs_by_little() -> None:
    """The first one too: a prior is no belief of the user's."""
    desk = Desk()
    job = desk.known(1, T)
    save(job, T, stall_s=1.0, write_s=50.0, eps=1.0)
    assert figures(desk, T + 100).eps.value == 2.0 * DEFAULT_EPS


def test_sizes_are_taken_as_they_are() -> None:
    """A size is exact and not smoothed; one that is far off is followed in steps."""
    config = dataclasses.replace(Desk().config, capacity_bytes_per_s=10**12)
    desk = Desk(config)
    job = desk.known(1, T, num_bytes=10**9)
    sizes = []
    for number, num_bytes in enumerate((10**9, 15 * 10**8, 10**10, 10**10, 10**10, 10**10)):
        save(job, T + 200 * number, done_bytes=num_bytes)
        sizes.append(figures(desk, T + 200 * number + 100).num_bytes.value)
    assert sizes == [10**9, 15 * 10**8, 3 * 10**9, 6 * 10**9, 10**10, 10**10]


def test_the_newest_own_rate_is_kept() -> None:
    """It comes with the request for a slot; a wild one moves it by a factor of two."""
    desk = Desk()
    job = desk.known(1, T)
    assert figures(desk, T).max_bytes_per_s == Estimate(value=None, num_samples=0)
    for number, (said, believed) in enumerate(
        ((500, 500), (600, 600), (10**16, 1200), (0, 1200), (1000, 1000))
    ):
        now_s = T + 100 * number
        job.heartbeat(now_s)
        job.ask(now_s, ready_in_s=0.0, max_bytes_per_s=said)
        assert figures(desk, now_s).max_bytes_per_s.value == believed
        job.release(now_s + 1)


def test_gpus_and_mtbf_of_a_job_that_has_saved_count_as_far_as_saves_bear_them_out() -> None:
    """What raises its demand and cannot be measured: twice at once, and twice with every save; a fall at once."""
    desk = Desk()
    job = desk.known(1, T, num_gpus=8, mtbf_s=3600.0)
    save(job, T)
    newer = job.next_attempt()
    newer.register(T + 200, num_gpus=1024, mtbf_s=1e-3)
    counted = []
    for number in range(3):
        load = planning.load_of(record(desk))
        counted.append((load.num_gpus, load.mtbf_s))
        save(newer, T + 300 + 200 * number)
    assert counted == [(16, 1800.0), (32, 900.0), (64, 450.0)]
    newer.register(T + 1000, num_gpus=1, mtbf_s=3600.0)
    load = planning.load_of(record(desk))
    assert (load.num_gpus, load.mtbf_s) == (1, 3600.0)
