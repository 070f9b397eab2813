"""How often jobs fail: what the evidence of a pool says, and for how much of it one job may stand."""

import random

import pytest

from rampmeter.core.messages import Survives
from rampmeter_coordinator.model import failures
from rampmeter_coordinator.model.failures import HALF_LIFE_S, MOST_FAILURES, Failures, mtbf_s
from rampmeter_coordinator.model.history import PRIOR, Belief, History
from rampmeter_coordinator.model.records import Job
from support.records import planned

HOUR = 3600.0
T = 1e6
SELDOM = 1e-9
"""Failures a second that are expected: none."""


def job(number: int = 0, *, num_gpus: int = 256, **figures) -> Job:
    return Job(
        uid=f"{number:032x}",
        name="run7",
        attempt=1,
        claim=bytes(16),
        num_gpus=num_gpus,
        registered_s=T,
        plan=planned(),
        history=History(credited_s=T),
        **figures,
    )


def pool_of(num_failures: int, gpu_hours: float, *, num_jobs: int = 10) -> Failures:
    """The evidence of jobs that failed in turn, an hour apart."""
    failures = Failures()
    jobs = [job(number) for number in range(num_jobs)]
    for one in jobs:
        failures.ran(one.history, 1000, T - gpu_hours * HOUR / 1000 / num_jobs, T, T)
    for number in range(num_failures):
        one = jobs[number % num_jobs]
        failures.failed(one, one.history, T - number * HOUR, SELDOM, T)
    return failures


@pytest.mark.parametrize(
    ("num_failures", "gpu_hours", "hours"), [(0, 0.0, 195.3), (2, 100_000.0, 195.3), (5, 100_000.0, 97.7)]
)
def test_m_of_256_gpus(num_failures: int, gpu_hours: float, hours: float) -> None:
    """One failure in 50,000 GPU-hours before anything was seen, then what was seen beside it."""
    failures = pool_of(num_failures, gpu_hours)
    failures.is_news(T)
    one = job(belief=failures.belief)
    assert mtbf_s(one) / HOUR == pytest.approx(hours, rel=0.005)
    assert failures.gpu_hours_per_failure / 256 == pytest.approx(hours, rel=0.005)


def test_a_job_that_fails_all_the_time_counts_for_three_failures() -> None:
    """Two hundred crashes in a night of 8 GPUs: three failures for the pool, two hundred for the job."""
    failures, one = pool_of(4, 200_000.0), job(99, num_gpus=8)
    before, belief = failures.num_failures, failures.gpu_hours
    for crash in range(200):
        at_s = T + 180.0 * (crash + 1)
        failures.ran(one.history, 8, at_s - 170.0, at_s, at_s)
        failures.failed(one, one.history, at_s, SELDOM, at_s)
    assert failures.num_failures - before <= MOST_FAILURES
    assert failures.num_failures - before == pytest.approx(MOST_FAILURES, rel=0.05)
    assert failures.gpu_hours == pytest.approx(belief, rel=0.03)
    assert one.history.num_failures == pytest.approx(200.0, rel=0.02)


def test_an_honest_giant_shows_its_rate() -> None:
    """Of a job with a hundred failures its hours are scaled down with its failures, not the failures alone."""
    failures, one = Failures(), job(num_gpus=16_384)
    for failure in range(100):
        at_s = T + 3.0 * HOUR * (failure + 1)
        failures.ran(one.history, 16_384, at_s - 3.0 * HOUR, at_s, at_s)
        failures.failed(one, one.history, at_s, SELDOM, at_s)
    assert failures.num_failures <= MOST_FAILURES + 1e-9
    assert failures.gpu_hours_per_failure == pytest.approx(50_000.0, rel=0.05)


@pytest.mark.parametrize("num_liars", [1, 5])
def test_a_claim_of_a_million_gpus_does_not_drown_the_evidence(num_liars: int) -> None:
    """Who never fails counts for the hours of three failures, whatever it claims and however many do."""
    failures = pool_of(20, 1_000_000.0)
    before = failures.gpu_hours_per_failure
    liars = [job(100 + number) for number in range(num_liars)]
    for hour in range(3):
        for liar in liars:
            failures.ran(liar.history, 10**6, T + hour * HOUR, T + (hour + 1) * HOUR, T + (hour + 1) * HOUR)
    assert before < failures.gpu_hours_per_failure <= before * (1.0 + 0.15 * num_liars)


def test_jobs_that_fail_at_once_are_one_failure_of_the_pool() -> None:
    """Thirty jobs go within 20 s and come back within half an hour: once for the pool, once for each."""
    failures, jobs = Failures(), [job(number) for number in range(30)]
    for number, one in enumerate(jobs):
        failures.failed(one, one.history, T + number * 20.0 / 30.0, SELDOM, T + 60.0 * number)
    assert failures.num_failures == pytest.approx(1.0, rel=0.01)
    assert failures.num_site == pytest.approx(1.0, rel=0.01)
    assert all(one.history.num_failures == pytest.approx(1.0) for one in jobs)


def test_failures_apart_are_many() -> None:
    """Ten jobs within ten hours: ten failures, and no event of the site."""
    failures, jobs = Failures(), [job(number) for number in range(10)]
    for number, one in enumerate(jobs):
        failures.failed(one, one.history, T + number * HOUR, SELDOM, T + number * HOUR)
    assert failures.num_failures == pytest.approx(10.0, rel=0.02)
    assert failures.num_site == 0.0


def test_what_chance_explains_is_no_event() -> None:
    """Where two failures a minute are usual three are three; thirty are one, and those counted are taken back."""
    failures, jobs = Failures(), [job(number) for number in range(30)]
    for one in jobs[:3]:
        assert failures.failed(one, one.history, T, 2.0 / 60.0, T) == []
    assert failures.num_failures == 3.0
    taken_back: list[str] = []
    for one in jobs[3:]:
        taken_back += failures.failed(one, one.history, T, 2.0 / 60.0, T)
    for uid in taken_back:
        failures.take_back(jobs[int(uid, 16)].history, T, T)
    assert len(taken_back) > 3
    assert failures.num_failures == pytest.approx(1.0)
    assert all(one.history.num_failures == 1.0 for one in jobs)


def test_a_job_that_fails_twice_in_a_minute_is_no_event() -> None:
    """Other jobs must have failed, too."""
    failures, one = Failures(), job()
    for at_s in (T, T + 30.0):
        failures.failed(one, one.history, at_s, SELDOM, at_s)
    assert failures.num_site == 0.0
    assert failures.num_failures == pytest.approx(2.0, rel=1e-3)


def test_old_evidence_fades() -> None:
    """After 14 days a failure and the hours around it count for half, for the pool and for the job."""
    failures, one = Failures(), job()
    failures.ran(one.history, 256, T - 100 * HOUR, T, T)
    failures.failed(one, one.history, T, SELDOM, T)
    failures.ran(one.history, 256, T, T, T + HALF_LIFE_S)
    assert failures.num_failures == pytest.approx(0.5)
    assert failures.gpu_hours == pytest.approx(12_800.0)
    assert one.history.num_failures == pytest.approx(0.5)
    assert one.history.gpu_hours == pytest.approx(12_800.0)


def test_three_failures_a_half_life() -> None:
    """A job that fails every two hours for two months never counts for more than three, nor for less for long."""
    failures, one = Failures(), job()
    for number in range(720):
        at_s = T + 2.0 * HOUR * (number + 1)
        failures.ran(one.history, 256, at_s - 2.0 * HOUR, at_s, at_s)
        failures.failed(one, one.history, at_s, SELDOM, at_s)
        assert failures.num_failures <= MOST_FAILURES + 1e-9
    assert failures.num_failures == pytest.approx(MOST_FAILURES)


def test_sums_are_what_the_jobs_have_in_them() -> None:
    """Whatever happened in whatever order: the pool's evidence is the sum of the jobs' shares."""
    rng, failures = random.Random(3), Failures()
    jobs = [job(number, num_gpus=rng.choice([8, 512, 10**6])) for number in range(12)]
    now_s = T
    for _ in range(400):
        now_s += rng.uniform(10.0, 20_000.0)
        one = rng.choice(jobs)
        failures.ran(one.history, one.num_gpus, now_s - rng.uniform(0.0, 9_000.0), now_s, now_s)
        if rng.random() < 0.4:
            for uid in failures.failed(one, one.history, now_s - 5.0, SELDOM, now_s):
                failures.take_back(jobs[int(uid, 16)].history, now_s - 5.0, now_s)
    for one in jobs:
        failures.ran(one.history, one.num_gpus, now_s, now_s, now_s)
    counted = sum(one.history.share * one.history.num_pooled for one in jobs)
    hours = sum(one.history.share * one.history.gpu_hours for one in jobs)
    assert failures.num_failures == pytest.approx(counted, rel=1e-6)
    assert failures.gpu_hours == pytest.approx(hours, rel=1e-6)


# -- what is believed of one job ---------------------------------------------------------------------------------------


def test_a_job_that_gives_m_learns_from_its_own_failures() -> None:
    """9 h, then 18 h of running without one, then two failures: (5 x 9 + 18) / (5 + k)."""
    one = job(mtbf_s=9 * HOUR)
    assert mtbf_s(one) == 9 * HOUR
    one.history.gpu_hours = 18.0 * 256
    assert mtbf_s(one) == pytest.approx(12.6 * HOUR)
    one.history.num_failures = 2.0
    assert mtbf_s(one) == pytest.approx(9 * HOUR)


@pytest.mark.parametrize(
    ("ran_h", "num_failures", "believed_h"),
    [(44.9, 0.0, (45 + 44.9) / 5), (45.1, 0.0, 195.3), (45.1, 1.0, (45 + 45.1) / 6), (90.1, 1.0, 195.3)],
)
def test_a_word_is_refuted_by_life(ran_h: float, num_failures: float, believed_h: float) -> None:
    """9 h are 5 failures in 45 h: where none came, the job is as the pool; one that comes bears its word out."""
    one = job(mtbf_s=9 * HOUR)
    one.history.gpu_hours, one.history.num_failures = ran_h * 256, num_failures
    assert mtbf_s(one) / HOUR == pytest.approx(believed_h, rel=0.001)


def test_only_a_word_that_has_nothing_to_do_with_life_is_absurd() -> None:
    """Fifty failures expected and none seen; what is said of the site, or nothing, never is."""
    one = job(mtbf_s=9 * HOUR)
    one.history.gpu_hours = 449.0 * 256
    assert not failures.is_absurd(one)
    one.history.gpu_hours = 451.0 * 256
    assert failures.is_absurd(one)
    one.history.num_failures = 1.0
    assert not failures.is_absurd(one)
    one.history.gpu_hours = 1e9
    assert failures.is_absurd(one)
    one.history.survives = Survives.SITE
    assert not failures.is_absurd(one)
    silent = job(mtbf_s=None)
    silent.history.gpu_hours = 1e9
    assert not failures.is_absurd(silent)


def test_a_refuted_word_is_not_replaced_by_a_worse_one() -> None:
    """Where the pool's rate makes M shorter still, the job's own hours count as before."""
    one = job(mtbf_s=9 * HOUR, belief=Belief(num_failures=99.0, gpu_hours=0.0))
    one.history.gpu_hours = 100.0 * 256
    pooled_h = 50_000 / 100 / 256
    assert mtbf_s(one) / HOUR == pytest.approx(4 * pooled_h)
    one.belief = Belief(num_failures=2.9, gpu_hours=-40_000.0)
    assert mtbf_s(one) / HOUR == pytest.approx((45 + 100) / 5)


@pytest.mark.parametrize(("num_failures", "believed_h"), [(2.0, 500.0), (3.0, 4 * 48.8)])
def test_in_doubt_the_shorter_is_believed(num_failures: float, believed_h: float) -> None:
    """Once a pool has seen three failures, optimism far above its rate is held against it; pessimism stays."""
    belief = Belief(num_failures=num_failures, gpu_hours=0.0)
    assert mtbf_s(job(mtbf_s=500 * HOUR, belief=belief)) / HOUR == pytest.approx(believed_h, rel=0.005)
    assert mtbf_s(job(mtbf_s=1 * HOUR, belief=belief)) == HOUR


def test_for_the_site_only_what_takes_many_jobs_counts() -> None:
    """By time: one event in 30 days at first, and the pool's own events and days then; GPUs do not matter."""
    small, large = (job(num_gpus=num_gpus) for num_gpus in (8, 8192))
    for one in (small, large):
        one.history.survives = Survives.SITE
        assert mtbf_s(one) == 30 * 86_400.0
        one.belief = Belief(num_failures=50.0, gpu_hours=10.0, num_site=1.0, site_s=10 * 86_400.0)
        assert mtbf_s(one) == 20 * 86_400.0


def test_time_of_the_site_is_counted_once() -> None:
    """Jobs that run side by side are one time in which something could have happened."""
    failures, first, second = Failures(), job(1), job(2)
    failures.ran(first.history, 8, T, T + 100.0, T + 100.0)
    failures.ran(second.history, 8, T + 50.0, T + 150.0, T + 150.0)
    assert failures.site_s == pytest.approx(150.0, rel=1e-3)


# -- memory ------------------------------------------------------------------------------------------------------------


def test_news_is_looked_for_once_a_minute_and_is_more_than_two_percent() -> None:
    """What all jobs are told moves in steps."""
    failures, one = Failures(), job()
    failures.ran(one.history, 256, T, T + 2 * HOUR, T)
    assert not failures.is_news(T)
    assert failures.belief is PRIOR
    failures.failed(one, one.history, T, SELDOM, T)
    assert not failures.is_news(T + 59.0)
    assert failures.is_news(T + 61.0)
    assert failures.belief.num_failures == pytest.approx(1.0)
    assert not failures.is_news(T + 200.0)


def test_what_is_kept_comes_back() -> None:
    """Sums, times and the events of the last hours; of an earlier release nothing."""
    failures, jobs = Failures(), [job(number) for number in range(3)]
    for one in jobs:
        failures.ran(one.history, 256, T, T + HOUR, T + HOUR)
        failures.failed(one, one.history, T + HOUR, SELDOM, T + HOUR)
    again = Failures.from_dict(failures.to_dict())
    assert again.to_dict() == failures.to_dict()
    assert again.belief.num_failures == pytest.approx(1.0)
    late = job(4)
    again.failed(late, late.history, T + HOUR + 30.0, SELDOM, T + 2 * HOUR)
    assert again.num_failures == pytest.approx(1.0, rel=0.01)
    assert Failures.from_dict({}).to_dict() == Failures().to_dict()


def test_another_boot_keeps_the_evidence_and_forgets_the_dates() -> None:
    """Its clock may say anything: nothing has faded."""
    failures, one = Failures(), job(1)
    failures.failed(one, one.history, T, SELDOM, T)
    failures.rebase(50.0)
    one.history.credited_s = 50.0
    failures.failed(job(2), History(credited_s=50.0), 60.0, SELDOM, 60.0)
    assert failures.num_failures == pytest.approx(2.0, rel=1e-3)
