"""Where GPU time went: each cause by itself, and what they sum to over a long life."""

import random

import pytest

from rampmeter.core.messages import EndReason, Grant, Kind, Outcome, Wait
from rampmeter_coordinator.model.goodput import NOTHING, OBSERVED, Account, Cause, charged, packed, unpacked
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.model.views import JobView
from support.desk import Desk
from support.lives import Life

T = 1e6
HOUR = 3600.0
LARGE = PoolConfig(name="pool", capacity_bytes_per_s=10**9, utilisation=1.0)
NARROW = PoolConfig(name="pool", capacity_bytes_per_s=100, utilisation=1.0)


def a_life(number: int = 1, now_s: float = T, desk: Desk | None = None, **figures) -> Life:
    return Life(desk or Desk(LARGE), number, now_s, **({"restart_s": 300.0} | figures))


def account(life: Life) -> Account:
    """Seconds of the job."""
    return view(life).account_s


def view(life: Life) -> JobView:
    (found,) = [v for v in life.desk.ledger.job_views(life.now_s) if v.job_uid == life.talker.uid]
    return found


# -- the sums ----------------------------------------------------------------------------------------------------------


def test_an_account_is_packed_and_unpacked() -> None:
    """Each cause has its own place, and an account that was never written is empty."""
    assert unpacked(NOTHING) == Account()
    raw = charged(NOTHING, OBSERVED, 100.0)
    for number, cause in enumerate(Cause):
        raw = charged(raw, cause, float(number + 1))
    found = Account(observed=100.0, stalled=1.0, waiting=2.0, rework=3.0, restart=4.0, discarded=5.0)
    assert unpacked(raw) == found
    assert packed(found) == raw
    assert (found.lost, found.useful) == (15.0, 85.0)


def test_accounts_of_other_releases_are_read_as_far_as_they_are_known() -> None:
    """One with a cause less, one with a cause more."""
    raw = packed(Account(observed=9.0, discarded=1.0))
    assert unpacked(raw[:-8]) == Account(observed=9.0)
    assert unpacked(raw + bytes(8)) == Account(observed=9.0, discarded=1.0)


def test_useful_is_never_negative() -> None:
    """Causes may overlap where a stall lies in work that is lost later."""
    assert Account(observed=1.0, stalled=0.7, rework=0.7).useful == 0.0


# -- one cause at a time -----------------------------------------------------------------------------------------------


def test_time_is_observed_from_save_to_save_and_useful_but_for_the_stall() -> None:
    """A stall of a second, and a fiftieth of the 8 s at work that the flush took."""
    life = a_life().work(HOUR)
    life.save(10.0, throttled_s=2.0, eps=0.02)
    found = account(life)
    assert found.observed == pytest.approx(HOUR + 10.0)
    assert found.stalled == pytest.approx(1.0 + 0.16)
    assert found.lost == found.stalled
    pool = life.desk.ledger.pool_view(life.now_s)
    assert pool.account_gpu_s.observed == pytest.approx(8 * found.observed)
    assert pool.goodput is not None
    assert pool.goodput.useful == pytest.approx(1.0 - found.stalled / found.observed)


def test_a_save_that_failed_has_held_training_up_too() -> None:
    """Whatever became of it."""
    life = a_life().work(HOUR)
    life.talker.ask(life.now_s, ready_in_s=0.0)
    life.now_s += 5.0
    life.talker.release(life.now_s, Outcome.FAILED, stall_s=2.0)
    assert account(life).stalled == 2.0


def test_a_synchronous_save_stalls_for_all_its_writing() -> None:
    """And waits in the queue with idle GPUs, which an asynchronous one does not."""
    for synchronous, stalled_s, waiting_s in ((True, 9.0, 20.0), (False, 1.0, 0.0)):
        desk = Desk(NARROW)
        other = desk.writer(7, T + HOUR, max_bytes_per_s=100)
        life = a_life(1, T, desk, synchronous=synchronous, num_bytes=900).work(HOUR)
        life.talker.ask(life.now_s, ready_in_s=0.0)
        other.release(life.now_s + 20.0, done_bytes=1)
        life.talker.hear()
        life.now_s += 29.0
        life.talker.release(life.now_s, done_bytes=900, write_s=9.0, stall_s=1.0)
        assert account(life).stalled == pytest.approx(stalled_s)
        assert account(life).waiting == pytest.approx(waiting_s)


def test_a_restore_that_waits_for_its_slot_is_waiting_not_loading() -> None:
    """It says that it loaded for 50 s: 20 of them in the queue."""
    life = a_life().work(HOUR)
    life.again(down_s=60.0, lost=True)
    assert isinstance(life.talker.ask(life.now_s, ready_in_s=0.0, kind=Kind.READ, num_bytes=900), Wait)
    life.now_s += 20.0
    assert isinstance(life.talker.ask(life.now_s, ready_in_s=0.0, kind=Kind.READ, num_bytes=900), Grant)
    life.now_s += 30.0
    life.call(restored_step=0, load_s=50.0, warm_up_s=0.0)
    assert account(life).waiting == pytest.approx(20.0)
    assert account(life).restart == pytest.approx(60.0 + 30.0)


def test_an_end_without_a_goodbye_costs_what_was_not_durable() -> None:
    """From the snapshot to the last contact; down, load and warm-up are the restart."""
    life = a_life().work(HOUR)
    life.save(10.0, stall_s=0.0)
    life.work(200.0)
    life.again(down_s=120.0)
    life.start(40.0, 20.0)
    found = account(life)
    assert found.rework == pytest.approx(210.0)
    assert found.restart == pytest.approx(180.0)
    assert found.observed == pytest.approx(HOUR + 210.0 + 180.0)


@pytest.mark.parametrize(("reason", "rework_s"), [(EndReason.FAILED, HOUR), (EndReason.FINISHED, 0.0)])
def test_without_a_save_all_since_the_start_is_lost(reason: EndReason, rework_s: float) -> None:
    """Unless it has finished."""
    life = a_life().work(HOUR)
    life.leave(reason)
    life.again(down_s=120.0)
    assert account(life).rework == pytest.approx(rework_s)
    assert account(life).restart == (120.0 if rework_s else 0.0)


def test_an_attempt_that_never_worked_is_restart_from_end_to_end() -> None:
    """Two starts that come to nothing, then one that works."""
    life = a_life().work(HOUR)
    for _ in range(2):
        life.again(down_s=100.0)
        life.now_s += 50.0
        life.call()
    life.again(down_s=100.0)
    assert account(life).restart == pytest.approx(3 * 100.0 + 2 * 50.0)
    assert account(life).rework == pytest.approx(HOUR)


def test_who_was_away_for_a_day_did_not_idle_with_its_gpus() -> None:
    """Neither observed nor lost."""
    life = a_life().work(HOUR)
    life.again(down_s=86_400.0)
    assert account(life).restart == 0.0
    assert account(life).observed == pytest.approx(HOUR)


def test_silence_is_not_observed() -> None:
    """Four hours without contact in the middle of an attempt."""
    life = a_life().work(HOUR)
    life.now_s += 4 * HOUR
    life.work(HOUR)
    life.save(10.0)
    assert account(life).observed == pytest.approx(2 * HOUR + 10.0)


@pytest.mark.parametrize(
    ("saved_ago_s", "rework_s"),
    [(None, 2 * HOUR), (4.5 * HOUR, 1.5 * HOUR), (1.5 * HOUR, HOUR), (10.0, HOUR)],
)
def test_work_of_which_nothing_was_heard_is_not_rework(saved_ago_s: float | None, rework_s: float) -> None:
    """An hour of work, four of silence, an hour of work, then the end; perhaps it saved by itself meanwhile."""
    life = a_life().work(HOUR)
    life.now_s += 4 * HOUR
    life.call(commit_age_s=saved_ago_s)
    life.work(HOUR)
    life.again(down_s=120.0)
    found = account(life)
    assert found.observed == pytest.approx(2 * HOUR + 120.0)
    assert found.rework == pytest.approx(rework_s)


def test_a_start_of_which_nothing_was_heard_is_not_restart() -> None:
    """The machine slept for a day while the job was starting, and the attempt came to nothing."""
    for told in ({}, {"restored_step": 0, "load_s": 9e4, "warm_up_s": 9e4}):
        life = a_life().work(HOUR)
        life.again(down_s=60.0)
        life.now_s += 86_400.0
        life.call(**told)
        life.now_s += 50.0
        life.call()
        life.again(down_s=60.0)
        found = account(life)
        assert found.observed == pytest.approx(HOUR + 2 * 60.0 + 50.0)
        assert found.restart <= 2 * 60.0 + 50.0 + 1e-6
        assert found.lost <= found.observed


def test_registering_again_after_a_silence_observes_nothing_and_is_no_failure() -> None:
    """The same attempt, as after a coordinator that had forgotten it."""
    life = a_life().work(HOUR)
    life.now_s += 4 * HOUR
    life.talker.register(life.now_s)
    life.work(HOUR)
    life.save(10.0)
    assert account(life).observed == pytest.approx(2 * HOUR + 10.0)
    assert life.desk.ledger.totals.interruptions == 0


@pytest.mark.parametrize(("rolled_back", "cause"), [(True, "discarded"), (False, "rework")])
def test_steps_given_up_are_discarded_and_steps_that_could_not_be_restored_are_rework(
    rolled_back: bool, cause: str
) -> None:
    """It had saved step 3,600, and goes on from 1,000."""
    life = a_life().work(HOUR)
    life.save(10.0, stall_s=0.0)
    life.leave(EndReason.PREEMPTED)
    life.again(down_s=120.0)
    before = getattr(account(life), cause)
    life.saved_step = 1000
    life.start(40.0, 20.0, rolled_back=rolled_back, step_s=0.5)
    assert getattr(account(life), cause) - before == pytest.approx(2600 * 0.5)


def test_the_time_of_a_step_is_by_the_clock_where_nobody_says_it() -> None:
    """A finished job of 3,600 steps in 3,610 s goes back to step 3,000."""
    life = a_life().work(HOUR)
    life.save(10.0, stall_s=0.0)
    life.leave(EndReason.FINISHED)
    life.again(down_s=120.0)
    life.saved_step = 3000
    life.start(40.0, 20.0, rolled_back=True)
    assert account(life).discarded == pytest.approx(600.0 * 3610 / 3600)


def test_absurd_times_cost_no_more_than_there_was() -> None:
    """A stall of a year, a rollback over 10^9 steps of a day each."""
    life = a_life().work(HOUR)
    life.save(10.0, stall_s=3e7)
    assert account(life).stalled <= HOUR + 10.0
    life.step = 10**9
    life.work(60.0)
    life.leave(EndReason.FINISHED)
    life.again(down_s=10.0)
    life.saved_step = 0
    life.start(1.0, 1.0, rolled_back=True, step_s=86_400.0)
    found = account(life)
    assert found.lost <= found.observed + 2.0
    assert found.useful >= 0.0


def test_a_heartbeat_charges_nothing() -> None:
    """An hour of them leaves account and meta alone."""
    life = a_life().work(60.0)
    life.save(10.0)
    before, meta = account(life), life.desk.meta
    life.work(HOUR)
    assert account(life) == before
    assert life.desk.meta == meta


def test_the_pool_keeps_the_account_of_jobs_that_are_forgotten() -> None:
    """A full pool forgets finished jobs, not what they used."""
    desk = Desk(PoolConfig(name="pool", capacity_bytes_per_s=10**9, max_jobs=1))
    life = a_life(1, T, desk).work(HOUR)
    life.leave(EndReason.FINISHED)
    a_life(2, life.now_s + 10.0, desk)
    pool = desk.ledger.pool_view(life.now_s + 10.0)
    assert pool.num_jobs == 1
    assert pool.account_gpu_s.observed == pytest.approx(8 * HOUR)


# -- a long life -------------------------------------------------------------------------------------------------------

STALL_S, EPS, WRITE_S, MTBF_S = 6.0, 0.02, 10.0, HOUR
DOWN_S, LOAD_S, WARM_UP_S = 60.0, 30.0, 20.0


def long_life(num_failures: int, seed: int) -> tuple[Life, float]:
    """A job that saves as its plan tells it and dies at random, and how long it was in contact or restarting."""
    rng, begun_s = random.Random(seed), T
    life = a_life(stall_s=STALL_S, write_s=WRITE_S, mtbf_s=MTBF_S, num_bytes=1_000)
    for _ in range(num_failures):
        dies_s = life.now_s + rng.expovariate(1.0 / MTBF_S)
        while life.now_s < dies_s:
            interval_s = life.record.plan.interval_s
            life.work(max(1.0, min(interval_s - WRITE_S, dies_s - life.now_s)))
            if life.now_s < dies_s:
                _save(life, dies_s)
        life.step = max(life.step, life.saved_step + 1)
        life.again(down_s=DOWN_S)
        life.start(LOAD_S, WARM_UP_S)
    life.save(WRITE_S, stall_s=STALL_S)
    return life, life.now_s - begun_s


def _save(life: Life, dies_s: float) -> None:
    if life.now_s + WRITE_S < dies_s:
        life.save(WRITE_S, stall_s=STALL_S, eps=EPS)
        return
    life.talker.ask(life.now_s, ready_in_s=0.0)
    life.now_s = dies_s
    life.call()


def test_an_account_adds_up_and_agrees_with_the_model() -> None:
    """A month of one job, some hundred failures: the sum is the time that passed, each loss what the formula says."""
    life, lived_s = long_life(200, seed=11)
    found, modelled = account(life), view(life).modelled
    assert found.observed == pytest.approx(lived_s, rel=1e-6)
    assert found.useful + found.lost == pytest.approx(found.observed, rel=1e-6)
    uptime_s = found.observed - found.restart
    assert found.restart == pytest.approx(200 * (DOWN_S + LOAD_S + WARM_UP_S), rel=0.01)
    assert found.rework / uptime_s == pytest.approx(modelled.rework, rel=0.12)
    assert found.stalled / uptime_s == pytest.approx(modelled.write, rel=0.12)
    assert found.restart / uptime_s == pytest.approx(modelled.restart, rel=0.12)
    believed = view(life)
    assert believed.mtbf_s == pytest.approx(MTBF_S, rel=0.12)
    assert believed.restart.restart_s == pytest.approx(DOWN_S + LOAD_S + WARM_UP_S)
    share = view(life).goodput
    assert share is not None
    assert share.useful == pytest.approx(found.useful / found.observed)


def test_the_day_of_a_quiet_job_is_useful_but_for_its_stalls() -> None:
    """No failure: C/T and nothing else."""
    life = a_life(stall_s=STALL_S, write_s=WRITE_S, mtbf_s=9 * HOUR, num_bytes=1_000)
    while life.now_s < T + 86_400.0:
        life.work(life.record.plan.interval_s - WRITE_S)
        life.save(WRITE_S, stall_s=STALL_S)
    found = account(life)
    assert found.lost == pytest.approx(view(life).num_committed * STALL_S)
    assert found.stalled == found.lost
