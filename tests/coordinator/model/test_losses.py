"""What jobs lose by the model: of their plans, and if nobody coordinated them; what people and metrics see of it."""

import pytest

from rampmeter.core import interval as formulas
from rampmeter.core.messages import EndReason
from rampmeter_coordinator.model import failures, losses, planning
from rampmeter_coordinator.model.failures import MOST_GPUS
from rampmeter_coordinator.model.goodput import Account
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.model.views import GoodputView
from support.desk import Desk
from support.lives import Life, record

T = 1e6
HOUR = 3600.0
SCARCE = PoolConfig(name="pool", capacity_bytes_per_s=100 * 10**9)
AMPLE = PoolConfig(name="pool", capacity_bytes_per_s=2 * 10**12)
EXAMPLE = {
    "num_gpus": 256,
    "num_bytes": 14 * 10**11,
    "stall_s": 1.5,
    "mtbf_s": 9 * HOUR,
    "restart_s": 840.0,
}
"""One of the 200 jobs of the worked example: 1.4 TB, a stall of 1.5 s, a failure in 9 h."""


def test_an_account_as_shares() -> None:
    """They sum to 1; nothing observed has none."""
    assert losses.measured(Account()) is None
    found = losses.measured(Account(observed=100.0, stalled=5.0, rework=10.0, restart=20.0))
    assert found == GoodputView(
        useful=0.65, stalled=0.05, waiting=0.0, rework=0.1, restart=0.2, discarded=0.0
    )


def test_a_plan_as_shares() -> None:
    """C/T + (T/2 + W + R)/M, with the interval that the job was told."""
    desk = Desk(AMPLE)
    job = desk.known(1, T, **EXAMPLE, write_s=15.0)
    view = desk.ledger.job_views(T)[0]
    load = record(desk, job).load
    assert load is not None
    expected = formulas.waste(view.plan.interval_s, load.cost_s, 9 * HOUR, write_s=15.0, restart_s=840.0)
    assert view.modelled.total == pytest.approx(expected.total)
    assert view.modelled.restart == pytest.approx(840.0 / (9 * HOUR))
    assert view.mtbf_s == 9 * HOUR
    assert view.goodput is None


def test_what_a_pool_would_lose_uncoordinated_is_beside_what_it_loses() -> None:
    """The worked example, 200 jobs on 100 GB/s: alone each would save so often that all do nothing but write."""
    desk = Desk(SCARCE)
    jobs = [desk.job(number, **EXAMPLE) for number in range(200)]
    for job in jobs:
        job.register(T)
    for at_s in (T + 10.0, T + 20.0):
        for job in jobs:
            job.heartbeat(at_s)
    view = desk.ledger.pool_view(T + 30.0)
    modelled, uncoordinated, aligned = view.modelled, view.uncoordinated, view.aligned
    assert modelled is not None
    assert uncoordinated is not None
    assert aligned is not None
    assert modelled.total - modelled.restart < 0.06
    assert uncoordinated.total - uncoordinated.restart == pytest.approx(0.15, abs=0.005)
    assert aligned.total - aligned.restart == pytest.approx(0.15, abs=0.005)


def test_means_of_a_pool_are_weighted_by_gpus() -> None:
    """M of the many GPUs counts most; failures a day follow from all of them."""
    desk = Desk(AMPLE)
    desk.known(1, T, **(EXAMPLE | {"num_gpus": 300, "mtbf_s": 10 * HOUR, "restart_s": 100.0}))
    desk.known(2, T, **(EXAMPLE | {"num_gpus": 100, "mtbf_s": 50 * HOUR, "restart_s": 500.0}))
    view = desk.ledger.pool_view(T)
    assert view.mtbf_s == pytest.approx(20 * HOUR)
    assert view.restart_s == pytest.approx(200.0)
    assert view.gpu_hours_per_failure == 50_000.0
    assert view.failures_per_day == pytest.approx(24 * 400 / 50_000)


def test_an_empty_pool_has_no_figures() -> None:
    """None of them is made up."""
    view = Desk(AMPLE).ledger.pool_view(T)
    assert (view.mtbf_s, view.restart_s, view.goodput, view.modelled) == (None, None, None, None)
    assert view.failures_per_day == 0.0


def test_the_model_is_not_asked_again_within_a_minute() -> None:
    """A look at a large pool costs as much as thousands of decisions."""
    desk = Desk(AMPLE)
    desk.known(1, T, **EXAMPLE)
    before = desk.ledger.pool_view(T)
    desk.known(2, T, **(EXAMPLE | {"mtbf_s": HOUR}))
    assert desk.ledger.pool_view(T + 59.0).modelled == before.modelled
    assert desk.ledger.pool_view(T + 61.0).modelled != before.modelled


def test_looking_changes_nothing() -> None:
    """Two lives, one of which is looked at all the time, are told the same."""
    plans = []
    for looks in (False, True):
        desk = Desk(AMPLE)
        life = Life(desk, 1, T, **EXAMPLE)
        for _ in range(5):
            life.work(HOUR)
            if looks:
                desk.ledger.pool_view(life.now_s)
                desk.ledger.job_views(life.now_s)
            life.talker.ask(life.now_s, ready_in_s=0.0)
            life.talker.release(life.now_s, "aborted")
            assert planning.load_of(life.record).mtbf_s == failures.mtbf_s(life.record)
        life.again(down_s=100.0)
        life.work(100.0)
        plans.append((life.record.plan, desk.records[life.talker.uid]))
    assert plans[0] == plans[1]


def test_an_absurd_claim_does_not_stand_for_the_pool() -> None:
    """2^53 GPUs that fail every millisecond lose all there is, and weigh no more than the largest job may."""
    desk = Desk(AMPLE)
    honest = Life(desk, 1, T, **EXAMPLE).work(60.0)
    liar = Life(desk, 2, honest.now_s, **(EXAMPLE | {"num_gpus": 2**53 - 1, "mtbf_s": 1e-3})).work(60.0)
    before = desk.ledger.pool_view(liar.now_s)
    assert losses.planned(liar.record).total == pytest.approx(1.0)
    for found in (before.modelled, before.uncoordinated, before.aligned):
        assert found is not None
        assert 0.5 < found.total <= 1.0 + 1e-9
    assert before.failures_per_day == pytest.approx(24.0 * (256 + MOST_GPUS) / before.gpu_hours_per_failure)
    honest.leave(EndReason.FINISHED)
    liar.leave(EndReason.FINISHED)
    account = desk.ledger.pool_view(liar.now_s).account_gpu_s
    assert account.observed == pytest.approx((256 + MOST_GPUS) * 60.0)
