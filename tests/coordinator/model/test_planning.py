"""What a job is told: interval, safe rate, reason, and what is not worth telling."""

import pytest
from msgspec.structs import replace

from rampmeter.core import interval
from rampmeter.core.messages import PlanReason
from rampmeter_coordinator.model import planning
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.model.records import Job, Planned
from support.answers import plan
from support.records import planned, with_figures

POOL = PoolConfig(name="pool", capacity_bytes_per_s=10**11)
PRICE = 3.4294e-8


def make_job(**changes: object) -> Job:
    """The job of the worked examples: 256 GPUs, 1.4 TB, C = 1.5 s, M = 9 h."""
    job = Job(
        uid="a",
        name="a",
        attempt=1,
        claim=bytes(16),
        num_gpus=256,
        registered_s=0.0,
        plan=planning.blank_plan(POOL),
        num_bytes=1_400_000_000_000,
        mtbf_s=32_400.0,
    )
    job.stall_s = 1.5
    return with_figures(job, **changes)


def plan_of(job: Job, price: float = 0.0, room: int = 10**12, config: PoolConfig = POOL) -> Planned:
    """The plan under a price from the figures of now, kept as the job's newest."""
    job.load = None
    job.plan = planning.replanned(job, price, room, config)
    return job.plan


def test_a_plan_says_interval_own_period_and_safe_rate() -> None:
    """At a price T is longer, requests may still come from the own period on, r = b / (0.8 T)."""
    plan = plan_of(make_job(), PRICE)
    assert plan.interval_s == pytest.approx(3500.0, rel=1e-4)
    assert plan.request_after_s == pytest.approx(311.77, rel=1e-4)
    assert plan.safe_bytes_per_s == pytest.approx(1.4e12 / (0.8 * 3500.0), rel=1e-4)
    assert plan.reason is PlanReason.PRICE


@pytest.mark.parametrize("factor", [1 / 1.19, 1.19])
def test_inside_the_dead_band_nothing_new_is_sent(factor: float) -> None:
    """An interval that changes by less than a factor 1.2 stays the same object."""
    job = make_job()
    plan = plan_of(job)
    job.stall_s = 1.5 * factor**2
    assert plan_of(job) is plan


@pytest.mark.parametrize("factor", [1 / 1.21, 1.21])
def test_outside_the_dead_band_a_new_plan_is_made(factor: float) -> None:
    """The next number, and the phase offset scaled along."""
    job = make_job()
    job.plan = replace(plan_of(job), phase_offset_s=100.0)
    job.stall_s = 1.5 * factor**2
    plan = plan_of(job)
    assert plan.number == 2
    assert plan.interval_s == pytest.approx(311.77 * factor, rel=1e-4)
    assert plan.phase_offset_s == pytest.approx(100.0 * factor)


def test_the_safe_rate_moves_without_a_dead_band() -> None:
    """What fits of the sum of all is told even if the interval stays."""
    job = make_job()
    wanted = plan_of(job).safe_bytes_per_s
    less = plan_of(job, room=wanted - 1)
    assert (less.number, less.safe_bytes_per_s, less.interval_s) == (2, wanted - 1, job.plan.interval_s)


def test_other_lease_times_make_a_new_plan() -> None:
    """A plan of shorter leases must not live on when leases have become longer."""
    job = make_job()
    plan_of(job)
    longer = PoolConfig(name="pool", capacity_bytes_per_s=10**11, ttl_s=60.0)
    assert plan_of(job, config=longer).safe_after_s == 180.0


def test_a_wish_for_a_short_interval_is_kept_while_storage_is_cheap() -> None:
    """At price 0 a maximum of 100 s is the interval."""
    plan = plan_of(make_job(interval_max_s=100.0))
    assert plan.interval_s == pytest.approx(100.0)
    assert plan.reason is PlanReason.OWN_PERIOD


def test_a_wish_that_can_not_be_had_gives_way_and_says_why() -> None:
    """Scarce storage stretches it like all others: reason budget."""
    plan = plan_of(make_job(interval_max_s=100.0), PRICE)
    assert plan.interval_s > 3000.0
    assert plan.reason is PlanReason.BUDGET


def test_a_minimum_is_hard_and_the_write_floor_too() -> None:
    """The longer of both bounds is told with its own reason."""
    job = make_job(interval_min_s=900.0)
    plan = plan_of(job)
    assert (plan.interval_s, plan.reason) == (900.0, PlanReason.MINIMUM)
    with_figures(job, write_s=1000.0)
    plan = plan_of(job)
    assert (plan.interval_s, plan.reason) == (1250.0, PlanReason.WRITE_FLOOR)


def test_an_overhead_budget_is_a_minimum() -> None:
    """3.5 % of a stall of 1.5 s are 42.9 s, which a wish does not undercut; no bid depends on it."""
    stingy = PoolConfig(name="pool", capacity_bytes_per_s=10**11, max_stall_share=0.035)
    plan = plan_of(make_job(interval_max_s=10.0), config=stingy)
    assert plan.interval_s == plan.request_after_s == pytest.approx(42.9, rel=0.005)
    assert plan.reason is PlanReason.MINIMUM
    assert plan_of(make_job(), config=stingy).reason is PlanReason.OWN_PERIOD


def test_a_job_that_says_nothing_still_has_a_plan() -> None:
    """Unknown bytes, stall and M: the priors, a safe rate of 0."""
    job = make_job(num_bytes=None, mtbf_s=None)
    job.stall_s = None
    plan = plan_of(job, PRICE)
    assert plan.interval_s == pytest.approx(interval.period(1.0, interval.mtbf(256)))
    assert plan.safe_bytes_per_s == 0


def test_a_synchronous_job_pays_with_its_write_time() -> None:
    """C is the measured write time, not the stall."""
    job = make_job(synchronous=True, write_s=15.0)
    assert plan_of(job).interval_s == pytest.approx(985.9, abs=0.05)


def test_lost_after_three_intervals_and_ten_minutes() -> None:
    """A silent job leaves demand and price after max(3 T, 10 min)."""
    job = make_job()
    plan_of(job)
    assert not planning.is_lost(job, 935.0)
    assert planning.is_lost(job, 936.0)
    job.plan = replace(job.plan, interval_s=10.0)
    assert not planning.is_lost(job, 600.0)
    assert planning.is_lost(job, 600.1)


def test_a_job_is_told_all_of_its_plan() -> None:
    """What the record leaves out of a plan is the same for all."""
    assert planning.told(planned(number=3, phase_offset_s=7.0)) == plan(number=3, phase_offset_s=7.0)
    said = planning.told(planned(), bid=2.0, live_price=1e30)
    assert said == plan(bid_gpu_s_per_byte=2.0, live_price_gpu_s_per_byte=interval.HIGHEST_PRICE)
