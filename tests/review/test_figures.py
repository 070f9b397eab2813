"""The arithmetic of a plan: the figures of a worked design review, and what happens at the edges."""

import pytest

from rampmeter.review.figures import bytes_per_parameter, figures, num_kept
from rampmeter.review.plan import Keep, Optimizer, Part, Precision, Retention, Size
from rampmeter.review.reading import as_plan, read_plan
from support.plans import FLAWED, tables


@pytest.fixture(scope="module")
def draft():
    """The figures of the flawed draft."""
    return figures(read_plan(FLAWED))


def test_the_size_is_980_gb_and_not_140(draft):
    """70 billion parameters at 14 bytes."""
    assert (draft.checkpoint_bytes, draft.planned_bytes) == (980 * 10**9, 140 * 10**9)


def test_a_write_takes_196_s(draft):
    """980 GB at 5 GB/s."""
    assert draft.write_s == 196


def test_the_plan_loses_6_9_percent_about_51_000_gpu_hours(draft):
    """2.7 % stall and 4.2 % rework of 737,280 GPU-hours; restarts are not in it."""
    assert draft.gpu_hours == 737_280
    assert draft.planned.waste.write == pytest.approx(0.02722, rel=1e-3)
    assert draft.planned.waste.rework == pytest.approx(0.041667, rel=1e-3)
    assert draft.planned.waste.restart == 0
    assert draft.planned.lost * draft.gpu_hours == pytest.approx(51_000, rel=0.005)


def test_the_best_interval_for_that_stall_is_97_minutes(draft):
    """sqrt(2 x 196 s x 24 h)."""
    assert draft.best.interval_s / 60 == pytest.approx(97, rel=0.005)


def test_a_pause_of_5_s_loses_1_1_percent_and_saves_43_000_gpu_hours(draft):
    """sqrt(2 x 5 s x 24 h) is 15.5 minutes."""
    assert draft.copied.interval_s / 60 == pytest.approx(15.5, rel=0.005)
    assert draft.copied.lost == pytest.approx(0.01076, rel=0.005)
    assert draft.gained_by_copying * draft.gpu_hours == pytest.approx(43_000, rel=0.005)


def test_all_checkpoints_are_353_tb_and_the_last_3_and_one_a_day_32(draft):
    """360 of them against 33."""
    assert draft.num_checkpoints * draft.checkpoint_bytes == pytest.approx(353e12, rel=0.005)
    kept = num_kept(Retention(keep=Keep.SOME, keep_last=3, one_per_s=86400.0), 30 * 86400.0, 360)
    assert kept * draft.checkpoint_bytes == pytest.approx(32.34e12, rel=0.005)


@pytest.mark.parametrize(
    ("precision", "optimizer", "saved", "num_bytes"),
    [
        (Precision.BF16_MIXED, Optimizer.ADAM, None, 14),
        (Precision.FP16_MIXED, Optimizer.ADAM, None, 14),
        (Precision.BF16_MIXED, Optimizer.ADAM, (Part.MASTER_WEIGHTS, Part.OPTIMIZER), 12),
        (Precision.BF16_MIXED, Optimizer.ADAM, (Part.WEIGHTS,), 14),
        (Precision.FP32, Optimizer.ADAM, None, 12),
        (Precision.BF16, Optimizer.ADAM, None, 6),
        (Precision.FP32, Optimizer.SGD_MOMENTUM, None, 8),
        (Precision.FP32, Optimizer.SGD, None, 4),
        (None, Optimizer.ADAM, None, None),
        (Precision.FP32, None, None, None),
    ],
)
def test_bytes_per_parameter(precision, optimizer, saved, num_bytes):
    """Weights, master weights where there are any, and the optimizer's moments."""
    size = Size(parameters=1, precision=precision, optimizer=optimizer, saved=saved)
    assert bytes_per_parameter(size) == num_bytes


def test_a_copy_of_much_per_gpu_pauses_longer():
    """40 GB per GPU at 2 GB/s are 20 s."""
    found = figures(
        as_plan(tables(run={"gpus": 1, "nodes": None}, size={"parameters": None, "total": "40GB"}))
    )
    assert found.copied.stall_s == 20


def test_a_background_write_counts_as_work_at_risk():
    """A failure falls back one interval more while the newest copy is not durable: W / M at full weight."""
    found = figures(as_plan(tables(storage={"write_bandwidth": "5GB/s"})))
    assert found.planned.waste.rework == pytest.approx((450 + 196) / 86400)


def test_the_best_interval_leaves_room_for_the_write():
    """1.25 write times of 980 s."""
    found = figures(as_plan(tables(storage={"write_bandwidth": "1GB/s"})))
    assert found.best.interval_s == 1225


def test_a_plan_that_loses_more_than_everything_loses_everything():
    """The first-order formula ends where the run does."""
    found = figures(as_plan(tables(run={"mtbf": "1min"})))
    assert found.planned.waste.total > 1
    assert found.planned.lost == 1


def test_without_a_stall_nothing_is_claimed():
    """An asynchronous plan that does not say how long training stops."""
    found = figures(as_plan(tables(schedule={"stall": None})))
    assert (found.planned, found.best, found.gained_by_best, found.gained_by_copying) == (
        None,
        None,
        0.0,
        0.0,
    )


def test_no_more_is_kept_than_was_written():
    """A short run writes less than its retention would keep."""
    assert num_kept(Retention(keep=Keep.SOME, keep_last=10), 3600.0, 4) == 4
