"""What ends and beginnings of attempts mean: which end is a failure, what is learned of restarts, who hears of it."""

import pytest

from rampmeter.core.messages import EndReason, Outcome, Survives
from rampmeter_coordinator.model import restarts
from rampmeter_coordinator.model.failures import mtbf_s
from rampmeter_coordinator.model.pool import PoolConfig
from support.desk import Desk
from support.lives import Life

T = 1e6
HOUR = 3600.0
LARGE = PoolConfig(name="pool", capacity_bytes_per_s=10**9, utilisation=1.0)


def a_life(number: int = 1, now_s: float = T, desk: Desk | None = None, **figures) -> Life:
    """A job whose M follows from the pool's evidence."""
    return Life(desk or Desk(LARGE), number, now_s, **({"mtbf_s": None, "restart_s": 300.0} | figures))


def evidence(life: Life) -> tuple[float, float]:
    """Failures and GPU-hours of the pool."""
    found = life.desk.ledger._state.failures
    return found.num_failures, found.gpu_hours


# -- what is a failure -------------------------------------------------------------------------------------------------


def test_an_end_without_a_goodbye_is_a_failure() -> None:
    """Dated by its last contact, with the hours that it was heard of."""
    life = a_life().work(HOUR)
    life.again(down_s=120.0)
    num_failures, gpu_hours = evidence(life)
    assert num_failures == pytest.approx(1.0, rel=1e-3)
    assert gpu_hours == pytest.approx(8.0, rel=1e-3)
    assert life.record.history.num_failures == pytest.approx(1.0, rel=1e-3)
    assert life.desk.ledger.totals.failures == life.desk.ledger.totals.interruptions == 1


@pytest.mark.parametrize(
    ("reason", "num_failures", "num_interruptions"),
    [
        (EndReason.FAILED, 1.0, 1),
        (EndReason.PREEMPTED, 1.0, 1),
        (EndReason.FINISHED, 0.0, 0),
        (EndReason.CANCELLED, 0.0, 0),
    ],
)
def test_a_goodbye_says_what_the_end_was(
    reason: EndReason, num_failures: float, num_interruptions: int
) -> None:
    """A preemption without its save is a failure; who has finished or was cancelled has not failed."""
    life = a_life().work(HOUR)
    life.leave(reason)
    life.again(down_s=120.0)
    assert evidence(life)[0] == pytest.approx(num_failures, rel=1e-3)
    assert life.desk.ledger.totals.interruptions == num_interruptions


@pytest.mark.parametrize(
    ("outcome", "lasted_s", "num_failures"),
    [
        (Outcome.COMMITTED, 9.0, 0.0),
        (Outcome.COMMITTED, 11.0, 0.0),  # its lease had lapsed at the very end
        (Outcome.FAILED, 9.0, 1.0),
        (Outcome.ABORTED, 9.0, 1.0),
    ],
)
def test_a_preemption_is_no_failure_if_its_save_was_committed(
    outcome: Outcome, lasted_s: float, num_failures: float
) -> None:
    """The notice was in time: nothing is lost but the restart."""
    life = a_life().work(HOUR)
    life.talker.ask(life.now_s, ready_in_s=0.0, urgent=True, deadline_s=100.0)
    life.now_s += lasted_s
    life.talker.release(life.now_s, outcome, done_bytes=1_000)
    life.leave(EndReason.PREEMPTED)
    life.again(down_s=120.0)
    assert evidence(life)[0] == pytest.approx(num_failures, rel=1e-3)
    assert life.desk.ledger.totals.interruptions == 1
    assert (life.record.history.num_down, life.record.history.down_s) == (1, 120.0)


@pytest.mark.parametrize(("ran_s", "num_failures"), [(290.0, 0.0), (310.0, 1.0)])
def test_an_attempt_shorter_than_a_restart_is_no_failure(ran_s: float, num_failures: float) -> None:
    """R is 5 minutes here: what crashes before that never was up."""
    life = a_life(restart_s=300.0).work(ran_s)
    life.again(down_s=60.0)
    assert evidence(life)[0] == pytest.approx(num_failures, rel=1e-3)


def test_an_attempt_without_a_step_is_no_failure() -> None:
    """It called in for an hour and stood at the step that it had restored."""
    life = a_life()
    life.step = 500
    for _ in range(72):
        life.now_s += 50.0
        life.call()
    life.again(down_s=60.0)
    assert evidence(life)[0] == 0.0
    assert life.desk.ledger.totals.interruptions == 1


def test_the_step_that_was_restored_is_no_progress() -> None:
    """The first heartbeat may come before the restore, at step 0: what counts is where it went on from."""
    life = a_life()
    life.call()
    life.step = 4000
    for _ in range(72):
        life.now_s += 50.0
        life.call(restored_step=4000)
    life.again(down_s=60.0)
    assert evidence(life)[0] == 0.0


def test_time_without_contact_is_in_no_hours() -> None:
    """An hour, four hours of silence, another hour in the same attempt."""
    life = a_life().work(HOUR)
    life.now_s += 4 * HOUR
    life.work(HOUR)
    life.leave(EndReason.FINISHED)
    assert evidence(life)[1] == pytest.approx(2 * 8.0, rel=0.01)
    assert life.record.history is not None


def test_a_lost_job_is_credited_up_to_its_last_contact() -> None:
    """It comes back three days later."""
    life = a_life().work(HOUR)
    life.again(down_s=3 * 86_400.0)
    assert evidence(life)[1] == pytest.approx(8.0 * 2 ** (-3 / 14), rel=0.2)
    assert life.record.history.num_down == 0


def test_the_same_attempt_that_registers_again_has_not_failed() -> None:
    """After a coordinator's restart all do."""
    life = a_life().work(HOUR)
    life.talker.register(life.now_s)
    life.work(HOUR)
    assert evidence(life)[0] == 0.0
    assert life.desk.ledger.totals.interruptions == 0


def test_jobs_that_die_together_are_one_failure() -> None:
    """Twenty jobs on one switch: their evidence is one failure, each has its own, and the site has had an event."""
    desk = Desk(LARGE)
    lives = [a_life(number, T + number, desk).work(HOUR - number) for number in range(1, 21)]
    for life in lives:
        life.again(down_s=60.0 + 20.0 * int(life.talker.uid, 16))
    assert evidence(lives[0])[0] == pytest.approx(1.0, rel=0.01)
    assert desk.ledger._state.failures.num_site == pytest.approx(1.0, rel=0.01)
    assert all(life.record.history.num_failures == pytest.approx(1.0, rel=0.01) for life in lives)


def test_two_hundred_crashes_in_a_night_are_three_for_the_others() -> None:
    """A job of 8 GPUs crashes every three minutes; another one's M falls to a quarter at most."""
    desk = Desk(LARGE)
    other, life = a_life(2, T, desk, num_gpus=256), a_life(1, T, desk, restart_s=60.0)
    for _ in range(200):
        life.work(150.0)
        life.again(down_s=30.0)
    num_failures, _ = evidence(life)
    assert 2.9 < num_failures <= 3.0
    assert desk.ledger.totals.failures == 200
    assert mtbf_s(other.record) / HOUR == pytest.approx(195.3 / 4, rel=0.03)


# -- who hears of it ---------------------------------------------------------------------------------------------------


def test_all_plans_follow_the_evidence_within_a_minute_but_no_heartbeat_does_the_sum() -> None:
    """Four failures of four jobs make M of a fifth a fifth, and its interval the root of that."""
    desk = Desk(LARGE)
    watcher = a_life(9, T, desk, num_gpus=256)
    watcher.call()
    before = desk.ledger.job_views(T)[0].plan.interval_s
    lives = [a_life(number, T + 600.0 * number, desk).work(HOUR) for number in range(1, 5)]
    for life in lives:
        life.again(down_s=100.0)
    end_s = lives[-1].now_s
    belief = watcher.record.belief
    watcher.now_s = end_s + 100.0
    watcher.call()
    assert watcher.record.belief is belief
    lives[0].now_s = end_s + 120.0
    lives[0].leave(EndReason.FINISHED)
    watcher.now_s = end_s + 125.0
    watcher.call()
    plan = desk.ledger.job_views(end_s + 125.0)[0].plan
    assert mtbf_s(watcher.record) / HOUR == pytest.approx(195.3 / 5, rel=0.01)
    assert plan.interval_s == pytest.approx(before / 5**0.5, rel=0.01)


def test_only_the_events_of_the_site_move_a_job_that_must_survive_no_other() -> None:
    """Failures one by one leave its M at 30 days."""
    desk = Desk(LARGE)
    site = a_life(9, T, desk, num_gpus=256, survives=Survives.SITE)
    lives = [a_life(number, T + 600.0 * number, desk).work(HOUR) for number in range(1, 5)]
    for life in lives:
        life.again(down_s=100.0)
    assert mtbf_s(site.record) == pytest.approx(30 * 86_400.0, rel=0.01)
    assert desk.ledger._state.failures.num_failures > 3.9


def test_a_restart_of_the_coordinator_forgets_nothing() -> None:
    """Evidence, R and accounts are in the store; the same clock goes on, and what is believed is as before."""
    life = a_life(mtbf_s=500 * HOUR).work(HOUR)
    life.again(down_s=120.0)
    life.start(40.0, 20.0)
    life.work(HOUR)
    life.save()
    before, account = evidence(life), life.desk.ledger._state.account
    history = life.record.history
    life.desk.restart()
    assert evidence(life) == before
    assert life.desk.ledger._state.account == account
    assert life.record.history == history
    assert life.record.belief.num_failures == pytest.approx(1.0, rel=1e-2)
    life.work(HOUR)
    life.again(down_s=120.0)
    assert evidence(life)[0] == pytest.approx(2.0, rel=1e-2)


def test_another_machine_takes_up_the_evidence_as_old_as_it_was() -> None:
    """Its clock says 100 s: in grace, nothing has faded and no hours are made up."""
    life = a_life().work(HOUR)
    life.again(down_s=120.0)
    before = evidence(life)
    life.desk.restart(grace_until_s=131.0)
    life.now_s = 100.0
    life.talker.register(life.now_s)
    life.now_s = 140.0
    life.work(HOUR)
    life.leave(EndReason.FINISHED)
    num_failures, gpu_hours = evidence(life)
    assert num_failures == pytest.approx(before[0], rel=0.01)
    assert gpu_hours == pytest.approx(before[1] + 8.0, rel=0.02)


# -- what a restart takes ----------------------------------------------------------------------------------------------


def test_a_restart_is_believed_until_all_parts_of_it_were_seen() -> None:
    """Down by the coordinator's clock, load and warm-up as the job tells them."""
    life = a_life(restart_s=300.0).work(HOUR)
    assert restarts.restart_s(life.record) == 300.0
    life.again(down_s=120.0)
    assert restarts.restart_s(life.record) == 300.0
    life.start(40.0, 20.0)
    history = life.record.history
    assert (history.down_s, history.load_s, history.warm_up_s) == (120.0, 40.0, 20.0)
    assert restarts.restart_s(life.record) == 180.0


def test_nothing_said_and_nothing_seen_is_ten_minutes() -> None:
    """A belief of ours."""
    assert restarts.restart_s(a_life(restart_s=None).record) == 600.0


def test_a_start_is_taken_in_once_however_often_it_is_told() -> None:
    """Each heartbeat of the attempt tells it again."""
    life = a_life().work(HOUR)
    life.again(down_s=120.0)
    for _ in range(5):
        life.start(40.0, 20.0)
    assert (life.record.history.num_load, life.record.history.num_warm_up) == (1, 1)


def test_samples_of_a_restart_are_smoothed_over_attempts() -> None:
    """One wild attempt moves R by a factor of two at most."""
    life = a_life().work(HOUR)
    for down_s in (100.0, 3000.0):
        life.again(down_s=down_s)
        life.work(HOUR)
    assert life.record.history.num_down == 2
    assert 100.0 < life.record.history.down_s <= 200.0


def test_a_start_longer_than_the_attempt_teaches_nothing() -> None:
    """It says that it loaded for a day, a minute after it registered."""
    life = a_life().work(HOUR)
    life.again(down_s=120.0)
    life.now_s += 60.0
    life.call(restored_step=0, load_s=86_400.0, warm_up_s=1.0)
    assert life.record.history.num_load == 0
    assert restarts.restart_s(life.record) == 300.0


def test_a_notice_after_which_the_attempt_went_on_is_no_excuse_later() -> None:
    """A false alarm was saved in time; the preemption an hour later was not."""
    life = a_life().work(HOUR)
    life.save(9.0, urgent=True)
    life.work(60.0)
    life.save(9.0)
    life.work(HOUR)
    life.leave(EndReason.PREEMPTED)
    life.again(down_s=120.0)
    assert evidence(life)[0] == pytest.approx(1.0, rel=1e-3)
