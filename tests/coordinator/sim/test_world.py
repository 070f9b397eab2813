"""Jobs in the world talk the real protocol with the real ledger: they save, fail, restore, hang and fall silent."""

import dataclasses
import itertools

import pytest

from rampmeter.core.messages import Gone, GoneReason, Kind
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.sim.job import Job, JobSpec
from rampmeter_coordinator.sim.training import Phase
from rampmeter_coordinator.sim.world import START_S, World

GB = 10**9
POOL = PoolConfig(name="pool", capacity_bytes_per_s=100 * GB)


class Play:
    """A world and its jobs, started one second apart."""

    def __init__(self, *specs, config=POOL, delay_s=0.0, **more):
        self.world = World(config, seed=3, delay_s=delay_s)
        self.saves = []
        self.jobs = [Job(self.world, spec, 3, on_save=self.saves.append, **more) for spec in specs]
        for number, job in enumerate(self.jobs):
            self.world.at(START_S + number, job.start)

    def run_until(self, end_s):
        self.world.run_until(end_s)
        return self


def spec(number=1, **what):
    known = {"num_gpus": 2048, "num_bytes": 800 * GB, "stall_s": 2.0, "lead_s": 5.0, "tail_s": 1.0}
    return JobSpec(uid=f"{number:032x}", **known | what)


def test_a_job_alone_saves_at_full_speed_and_is_done_after_lead_in_bytes_and_tail():
    play = Play(spec()).run_until(3000.0)
    assert len(play.saves) > 3
    for save in play.saves:
        assert save.committed_s - save.granted_s == pytest.approx(5.0 + 10.0 + 1.0)
        assert save.governed


def test_the_time_on_the_wire_is_paid():
    play = Play(spec(), delay_s=0.2).run_until(3000.0)
    assert {round(save.committed_s - save.granted_s, 6) for save in play.saves} == {5.0 + 10.0 + 1.0 + 0.4}


def test_leases_never_add_up_to_more_than_the_budget():
    play, seen = Play(*(spec(number, num_gpus=65_536) for number in range(1, 7))), []
    storage = play.world.storages[Kind.WRITE]
    play.world.watchers.append(lambda *_: seen.append(storage.allowed_bytes_per_s))
    play.run_until(1500.0)
    assert max(seen) <= POOL.budget_bytes_per_s
    assert len({save.uid for save in play.saves}) == 6


def test_failures_lose_what_is_not_durable_and_the_next_attempt_reads_it_back():
    play = Play(spec(mtbf_s=4000.0, restart_s=60.0)).run_until(40_000.0)
    (job,) = play.jobs
    sums = job.training.sums(play.world.now_s)
    assert sums.num_failures > 3
    assert job.num_attempts == sums.num_failures + 1
    assert sums.restart_s == pytest.approx(60.0 * sums.num_failures)
    assert sums.restore_s == pytest.approx(10.0 * sums.num_resumed)
    assert sums.restore_wait_s == pytest.approx(0.0, abs=1e-6)
    assert sums.rework_s > 0.0


def test_failures_come_at_the_same_times_whatever_else_happens():
    falls = []
    for num_others in (0, 5):
        others = [spec(number, num_gpus=65_536) for number in range(2, 2 + num_others)]
        play, down_s = Play(spec(mtbf_s=3000.0, restart_s=60.0), *others), []
        training = play.jobs[0].training
        play.world.watchers.append(lambda at_s, _, t=training, d=down_s: None if t.is_up else d.append(at_s))
        play.run_until(12_000.0)
        falls.append(down_s)
    assert min(falls[0][0], falls[1][0]) > START_S + 60.0
    assert falls[0][0] == falls[1][0]


def test_a_hung_writer_saves_no_more_and_the_others_do():
    play = Play(*(spec(number, num_gpus=65_536) for number in range(1, 4)))
    hung = play.jobs[0]
    while hung.attempt is None or hung.attempt.transfer is None or not hung.attempt.transfer.is_open:
        play.run_until(play.world.now_s - START_S + 0.5)
    hung.hang()
    now_s = play.world.now_s
    play.run_until(now_s - START_S + 1500.0)
    later = [save.uid for save in play.saves if save.committed_s > now_s]
    assert hung.spec.uid not in later
    assert set(later) == {job.spec.uid for job in play.jobs[1:]}


def test_a_silent_job_stops_at_its_deadline_and_goes_on_at_its_safe_rate():
    play = Play(spec(), config=PoolConfig(name="pool", capacity_bytes_per_s=100 * GB, utilisation=0.8))
    play.run_until(2000.0)
    (job,) = play.jobs
    job.attempt.cut_off = True
    num_before, storage, rates = len(play.saves), play.world.storages[Kind.WRITE], set()
    play.world.watchers.append(lambda *_: rates.add(storage.allowed_bytes_per_s))
    play.run_until(8000.0)
    later = play.saves[num_before + 1 :]
    assert later
    assert not any(save.governed for save in later)
    assert rates <= {0.0, float(job.attempt.clock.plan.safe_bytes_per_s), float(POOL.budget_bytes_per_s)}
    assert float(job.attempt.clock.plan.safe_bytes_per_s) in rates


def test_a_save_before_a_preemption_is_in_time_and_ends_the_attempt():
    play = Play(spec(share_preempted=0.5, restart_s=30.0)).run_until(6000.0)
    urgent = [save for save in play.saves if save.urgent_s is not None]
    assert urgent
    assert all(save.committed_s - save.urgent_s < 120.0 for save in urgent)
    assert play.jobs[0].num_attempts == len(urgent) + 1 or play.jobs[0].num_attempts == len(urgent)
    assert play.jobs[0].training.sums(play.world.now_s).rework_s < 20.0 * len(urgent)


def test_a_save_that_makes_room_is_thrown_away_and_its_job_saves_again():
    play = Play(spec())
    (job,) = play.jobs
    while job.attempt is None or job.attempt.transfer is None or not job.attempt.transfer.is_open:
        play.run_until(play.world.now_s - START_S + 0.5)
    attempt, num_before, durable_s = job.attempt, len(play.saves), job.training.durable_s
    gone = Gone(seq=attempt._request.seq, held_s=0.0, confirm=False, reason=GoneReason.MAKE_ROOM)
    attempt.hear(gone.seq, gone)
    assert play.world.storages[Kind.WRITE].streams == []
    assert job.training.phase is Phase.RUNNING
    assert job.training.durable_s == durable_s
    play.run_until(play.world.now_s - START_S + 60.0)
    assert play.world.ledger.totals.aborted == 1
    assert len(play.saves) == num_before + 1


def test_training_stands_still_for_the_stall_alone_and_is_slowed_down_by_the_flush():
    play = Play(spec(eps=0.05)).run_until(3000.0)
    (job,) = play.jobs
    sums = job.training.sums(play.world.now_s)
    assert job.training.phase is Phase.RUNNING
    assert sums.stall_s == pytest.approx(2.0 * len(play.saves))
    assert sums.slowed_s == pytest.approx(0.05 * 10.0 * len(play.saves))


def test_the_same_seed_gives_the_same_world():
    first, second = (
        Play(*(spec(number, mtbf_s=9000.0) for number in range(1, 6))).run_until(5000.0) for _ in range(2)
    )
    assert first.saves == second.saves
    assert first.world.num_events == second.world.num_events


def test_things_happen_in_the_order_of_their_times_and_then_of_their_arrangement():
    world, happened = World(POOL, seed=1), []
    for at_s, name in ((5.0, "b"), (3.0, "a"), (5.0, "c")):
        world.at(START_S + at_s, lambda name=name: happened.append((world.now_s - START_S, name)))
    world.run_until(4.0)
    assert happened == [(3.0, "a")]
    world.run_until(9.0)
    assert happened == [(3.0, "a"), (5.0, "b"), (5.0, "c")]
    assert world.now_s == START_S + 9.0


def test_a_watcher_sees_all_of_the_time_and_nothing_twice():
    play, spans = Play(spec()), []
    play.world.watchers.append(lambda from_s, to_s: spans.append((from_s, to_s)))
    play.run_until(700.0)
    assert spans[0][0] == START_S
    assert spans[-1][1] == START_S + 700.0
    assert all(early[1] == late[0] for early, late in itertools.pairwise(spans))


def test_no_honest_agent_is_taken_for_absurd():
    """Restores that take rates back, failures, preemptions and answers that are half a second on their way."""
    jobs = (
        spec(number, num_gpus=8192, mtbf_s=3000.0, restart_s=60.0, share_preempted=0.3)
        for number in range(1, 9)
    )
    play = Play(*jobs, config=dataclasses.replace(POOL, shared_reads=True), delay_s=0.5).run_until(6000.0)
    totals = play.world.ledger.totals
    assert totals.committed > 100
    assert totals.absurd == 0
