"""Who the jobs are, what they are told, what is learned of them."""

import random

import pytest

from rampmeter.core.messages import Outcome, PlanReason
from rampmeter_coordinator.model import planning
from rampmeter_coordinator.model.pool import PoolConfig
from support.desk import POOL, Desk
from support.lives import record

T = 1000.0


def test_a_registration_is_answered_with_a_plan() -> None:
    """Always, with a phase inside the interval."""
    desk = Desk()
    job = desk.job(1)
    job.register(T)
    plan = job.last.plan
    assert plan is not None
    assert plan.number >= 1
    assert 0.0 <= plan.phase_offset_s < plan.interval_s
    assert (plan.safe_after_s, plan.safe_for_s, plan.heartbeat_s) == (90.0, 4 * 3600.0, 15.0)


def test_two_names_are_two_jobs_and_one_uid_is_one() -> None:
    """The uid tells jobs apart, the name is a label."""
    desk = Desk()
    desk.known(1, T, name="same")
    desk.known(2, T, name="same")
    assert desk.ledger.pool_view(T).num_jobs == 2


def test_equal_jobs_do_not_fall_together() -> None:
    """Phases of jobs that register in one moment are spread over the interval."""
    desk = Desk()
    offsets = [desk.known(number, T).desk.ledger.job_views(T)[-1].plan.phase_offset_s for number in range(50)]
    interval_s = desk.ledger.job_views(T)[0].plan.interval_s
    quarters = [int(4 * offset / interval_s) for offset in offsets]
    assert all(6 <= quarters.count(quarter) <= 22 for quarter in range(4))


def test_figures_of_a_registration_are_believed_until_something_was_measured() -> None:
    """Cold-start figures count until the first committed save."""
    desk = Desk()
    job = desk.writer(1, T, num_bytes=5_000)
    assert desk.ledger.job_views(T)[0].num_bytes == 5_000
    job.release(T + 10, done_bytes=7_000, stall_s=2.0, write_s=10.0)
    job.register(T + 11, num_bytes=9_000, stall_s=9.0)
    view = desk.ledger.job_views(T + 11)[0]
    assert (view.num_bytes, view.stall_s, view.write_s) == (7_000, 2.0, 10.0)


def test_samples_are_smoothed() -> None:
    """A new sample weighs 0.3."""
    desk = Desk()
    job = desk.writer(1, T, stall_s=1.0)
    job.release(T + 10, stall_s=2.0, write_s=10.0)
    job.ask(T + 11, ready_in_s=0.0)
    job.release(T + 31, stall_s=1.3, write_s=20.0)
    view = desk.ledger.job_views(T + 31)[0]
    assert view.stall_s == pytest.approx(1.79)
    assert view.write_s == pytest.approx(13.0)


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.ABORTED])
def test_only_committed_saves_teach(outcome: Outcome) -> None:
    """What went wrong says nothing about how long it takes."""
    desk = Desk()
    job = desk.writer(1, T)
    job.release(T + 1, outcome, done_bytes=3, stall_s=99.0, write_s=99.0)
    view = desk.ledger.job_views(T + 1)[0]
    assert (view.num_bytes, view.stall_s, view.write_s) == (10_000, 1.0, None)


def test_a_heartbeat_says_how_far_the_job_is() -> None:
    """Step, newest commit and its age, and what went wrong."""
    desk = Desk()
    job = desk.known(1, T)
    job.heartbeat(
        T + 1, step=70, committed_step=60, commit_age_s=12.0, num_skipped=2, num_failed=1, num_ungoverned=3
    )
    view = desk.ledger.job_views(T + 2)[0]
    assert (view.step, view.committed_step, view.commit_age_s) == (70, 60, 13.0)
    assert (view.num_skipped, view.num_failed, view.num_ungoverned) == (2, 1, 3)


@pytest.mark.parametrize("seed", range(10))
def test_issued_safe_rates_never_pass_the_capacity(seed: int) -> None:
    """Random jobs in random order, lost answers, goodbyes: what agents may believe in sums to at most the capacity."""
    rng = random.Random(seed)
    desk = Desk(PoolConfig(name="pool", capacity_bytes_per_s=500))
    jobs = [
        desk.job(number, num_bytes=rng.choice([None, 10, 5_000, 200_000]), num_gpus=rng.choice([1, 8, 4096]))
        for number in range(15)
    ]
    held = dict.fromkeys(range(15), 0)
    now_s = T
    for _ in range(400):
        now_s += rng.uniform(0.1, 5.0)
        number = rng.randrange(15)
        job, lost = jobs[number], rng.random() < 0.3
        said = job.heartbeat if job.ack and rng.random() < 0.95 else job.register
        body = said(now_s, lost=lost, **({} if said == job.heartbeat else {"safe_bytes_per_s": held[number]}))
        plan = getattr(body, "plan", None)
        if plan is not None and not lost:
            held[number] = plan.safe_bytes_per_s
        assert sum(held.values()) <= 500


def test_a_goodbye_gives_the_safe_rate_back() -> None:
    """What the one may believe in no more, the other is issued with its next heartbeat."""
    desk = Desk(PoolConfig(name="pool", capacity_bytes_per_s=500))
    first, second = (desk.known(number, T, num_bytes=200_000) for number in (1, 2))
    rates = [view.plan.safe_bytes_per_s for view in desk.ledger.job_views(T)]
    assert rates[0] > 0 == rates[1]
    first.finish(T + 1)
    second.heartbeat(T + 2)
    assert desk.ledger.job_views(T + 2)[1].plan.safe_bytes_per_s >= rates[0]


def test_a_newer_attempt_brings_the_plan_of_the_root_along() -> None:
    """Its safe rate counts from the start: it may use it without ever being heard of again."""
    desk = Desk()
    old = desk.known(1, T)
    rate = desk.ledger.job_views(T)[0].plan.safe_bytes_per_s
    new = old.next_attempt()
    new.register(T + 1, safe_bytes_per_s=rate, lost=True)
    assert desk.counted(T + 1) >= rate


def test_scarce_storage_has_a_price() -> None:
    """Jobs whose demand exceeds the budget are told longer intervals, with the reason."""
    desk = Desk()
    jobs = [desk.known(number, T, num_bytes=100_000) for number in range(10)]
    for round_s in range(3, 30, 3):
        for job in jobs:
            job.heartbeat(T + round_s)
    view = desk.ledger.pool_view(T + 30)
    plans = [job.plan for job in desk.ledger.job_views(T + 30)]
    assert view.price_gpu_s_per_byte > 0
    assert view.demand_bytes_per_s <= 1.2 * 1000
    assert {plan.reason for plan in plans} == {PlanReason.PRICE}


def test_a_lost_job_leaves_price_and_demand() -> None:
    """The others' intervals become short again once a silent job is lost."""
    desk = Desk(POOL)
    greedy = desk.known(1, T, num_bytes=10_000_000, num_gpus=100_000)
    job = desk.known(2, T, num_bytes=1_000)
    for at_s in range(15, 100_000, 900):
        job.heartbeat(T + at_s)
        job.heartbeat(T + at_s)
        if desk.ledger.pool_view(T + at_s).price_gpu_s_per_byte == 0.0 and at_s > 3_000:
            break
    assert desk.ledger.pool_view(T + at_s).price_gpu_s_per_byte == 0.0
    assert greedy.ack > 0


def test_what_the_lease_holds_back_is_no_cost_of_a_save() -> None:
    """A save of 9 s alone that took 30 s at its lease slows training for 9 s: our queue must not lengthen intervals."""
    desk = Desk()
    slow, free = (desk.known(number, T, stall_s=1.0) for number in (1, 2))
    for job, write_s, throttled_s in ((slow, 30.0, 21.0), (free, 9.0, 0.0)):
        job.ask(T, ready_in_s=0.0)
        figures = {"done_bytes": 10_000, "stall_s": 1.0, "write_s": write_s, "throttled_s": throttled_s}
        job.release(T + 30, **figures)
    slow_view, free_view = desk.ledger.job_views(T + 30)
    assert (slow_view.write_s, free_view.write_s) == (30.0, 9.0)
    costs = [planning.load_of(job).cost_s for job in desk.ledger._state.jobs.values()]
    assert costs[0] == costs[1]


def test_a_new_attempt_has_not_asked_for_anything_yet() -> None:
    """Whatever became of the slots of the one before: its place, its missed leases and its false alarms are gone."""
    desk = Desk()
    job = desk.writer(1, T)
    assert record(desk, job).turn is not None
    job.next_attempt().register(T + 1)
    assert record(desk, job).turn is None


def test_whoever_says_goodbye_leaves_the_queue() -> None:
    """Nobody waits for a slot any more."""
    desk = Desk()
    desk.writer(1, T)
    job = desk.known(2, T)
    job.ask(T, ready_in_s=0.0)
    assert desk.ledger.job_views(T + 5)[1].waiting_for_s == 5.0
    job.finish(T + 6)
    assert desk.ledger.job_views(T + 7)[1].waiting_for_s is None
