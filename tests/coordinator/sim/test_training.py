"""What training loses is told by cause, and the expectation of the rework is the mean of what happens."""

import random

import pytest

from rampmeter_coordinator.sim.training import Phase, Training

MTBF_S = 5000.0


def training():
    started = Training(mtbf_s=MTBF_S, now_s=0.0)
    started.enter(Phase.RUNNING, 0.0)
    return started


def test_each_second_is_work_or_lost_to_one_cause():
    job = training()
    job.enter(Phase.STALLED, 100.0)
    job.enter(Phase.RUNNING, 103.0)
    job.slowed(2.0, 123.0)
    job.saved(100.0)
    job.fall_back(200.0, failed=True)
    job.enter(Phase.RESTORING, 260.0)
    job.enter(Phase.RUNNING, 270.0)
    sums = job.sums(300.0)
    assert (sums.stall_s, sums.restart_s, sums.restore_s) == (3.0, 60.0, 10.0)
    assert sums.slowed_s == pytest.approx(2.0)
    assert sums.rework_s == pytest.approx(95.0)  # 195 s of work at 200 s, 100 of them durable
    lost_s = sums.stall_s + sums.slowed_s + sums.rework_s + sums.restart_s + sums.restore_s
    assert job.work_s + lost_s == pytest.approx(300.0)
    assert (sums.num_failures, sums.num_resumed) == (1, 1)


def test_a_preemption_is_no_failure():
    job = training()
    job.saved(10.0)
    job.fall_back(10.0, failed=False)
    assert job.sums(10.0).num_failures == 0
    assert not job.is_up


def test_an_older_snapshot_never_makes_durable_work_undone():
    job = training()
    job.saved(50.0)
    job.saved(40.0)
    assert job.durable_s == 50.0


def test_the_expected_rework_is_the_mean_of_the_rework_that_happens():
    """Failures with rate 1/M, a save each 400 s, some of them late: the means agree within four errors."""
    rng, seen, expected = random.Random(5), [], []
    for _ in range(4000):
        job, now_s = training(), 0.0
        fails_s = rng.expovariate(1.0 / MTBF_S)
        end_s = min(fails_s, 3000.0)
        while now_s + 400.0 < end_s:
            now_s += 400.0
            job.advance(now_s)
            job.saved(job.work_s - rng.choice([0.0, 0.0, 100.0]))
        job.advance(end_s)
        if fails_s < 3000.0:
            job.fall_back(end_s, failed=True)
        sums = job.sums(end_s)
        seen.append(sums.rework_s)
        expected.append(sums.expected_rework_s)
    differences = [a - b for a, b in zip(seen, expected, strict=True)]
    mean = sum(differences) / len(differences)
    error = (sum((d - mean) ** 2 for d in differences)) ** 0.5 / len(differences)
    assert abs(mean) < 4.0 * error
    assert error < 0.06 * sum(seen) / len(seen)


def test_a_window_is_the_difference_of_two_sums():
    job = training()
    before = job.sums(50.0)
    job.enter(Phase.STALLED, 60.0)
    window = job.sums(65.0).minus(before)
    assert (window.observed_s, window.stall_s, window.num_failures) == (15.0, 5.0, 0)
