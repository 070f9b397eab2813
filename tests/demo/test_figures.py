"""What makes a demo succeed or fail, and what it says as JSON."""

from dataclasses import replace

import pytest

from rampmeter_coordinator.demo.figures import Act, ActFigures, Figures, Restore, as_json, figures, problems
from rampmeter_coordinator.demo.history import CoordinatorBack, CoordinatorKilled, Digest, Killed, Restored
from rampmeter_coordinator.demo.observer import Lost
from rampmeter_coordinator.demo.scenario import scenario
from support.histories import allowed, losses, save

HERD = ActFigures(
    peak_writers=6,
    peak_over_capacity=6.0,
    peak_rights=0.0,
    p50_write_s=2.5,
    p95_write_s=3.5,
    lost=Lost(stall=0.019, rework=0.0325),
    num_commits=24,
    num_failed=0,
    step_s=0.4,
)
METERED = replace(
    HERD,
    peak_writers=1,
    peak_over_capacity=0.8,
    peak_rights=0.8,
    p50_write_s=1.0,
    p95_write_s=1.2,
    lost=Lost(stall=0.02, rework=0.025),
)
GOOD = Figures(
    herd=HERD,
    metered=METERED,
    victim="demo-3",
    steps_lost=14,
    bit_exact=True,
    num_jobs=6,
    num_restored=6,
    steps_repeated_elsewhere=0,
    leases_broken=0,
    coordinator_down_s=None,
    step_s=0.4,
    act_s=36.0,
)


def test_a_demo_that_kept_all_promises_has_no_problems():
    """Nothing to complain about."""
    assert problems(GOOD) == []


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        (replace(GOOD, num_restored=5), "only 5 of 6"),
        (replace(GOOD, steps_lost=None), "did not resume"),
        (replace(GOOD, bit_exact=False), "not with the losses"),
        (replace(GOOD, steps_repeated_elsewhere=3), "repeated 3 steps"),
        (replace(GOOD, leases_broken=1), "1 leases did not outlive"),
        (replace(GOOD, metered=replace(METERED, peak_rights=1.01)), "more than the storage's capacity"),
        (replace(GOOD, metered=replace(METERED, num_failed=1)), "1 metered saves failed"),
        (replace(GOOD, metered=replace(METERED, peak_over_capacity=6.0)), "less load"),
        (replace(GOOD, metered=replace(METERED, p50_write_s=2.6)), "did not write faster"),
        (replace(GOOD, metered=replace(METERED, p95_write_s=3.6)), "slowest metered saves"),
        (replace(GOOD, metered=replace(METERED, lost=HERD.lost)), "less time"),
    ],
)
def test_each_broken_promise_is_named(changed, complaint):
    """One broken promise, one complaint."""
    (found,) = problems(changed)
    assert complaint in found


def test_short_acts_are_not_judged_by_time_lost_nor_by_their_slowest_save():
    """Two checkpoints a job say nothing about what checkpoints cost, and the worst of ten is one that met a kill."""
    assert (
        problems(replace(GOOD, act_s=12.0, metered=replace(METERED, lost=HERD.lost, p95_write_s=3.6))) == []
    )


def test_short_acts_are_judged_by_their_median_save():
    """Most saves are faster, however short the act."""
    assert len(problems(replace(GOOD, act_s=12.0, metered=replace(METERED, p50_write_s=2.6)))) == 1


def test_a_machine_without_room_is_noticed():
    """Steps that take much longer than the device are the machine's doing."""
    assert replace(GOOD, metered=replace(METERED, step_s=0.6)).too_busy
    assert not GOOD.too_busy


def test_a_machine_without_room_is_not_judged_by_time_lost():
    """What its own load costs the jobs is more than the difference between the acts."""
    busy = replace(METERED, step_s=0.6, lost=HERD.lost)
    assert problems(replace(GOOD, metered=busy)) == []


def test_the_json_has_the_promised_shape():
    """Other programs rely on these names."""
    assert as_json(GOOD) == {
        "herd": {
            "peak_writers": 6,
            "peak_over_capacity": 6.0,
            "p50_write_s": 2.5,
            "p95_write_s": 3.5,
            "lost_ratio": 0.0515,
        },
        "metered": {
            "peak_writers": 1,
            "peak_over_capacity": 0.8,
            "p50_write_s": 1.0,
            "p95_write_s": 1.2,
            "lost_ratio": 0.045,
        },
        "kill": {"steps_lost": 14, "bit_exact": True},
    }


PLAY = scenario(act_s=10.0, seed=0)


def _acts():
    """A herd of two, and the same metered with a kill of demo-3 and of the coordinator."""
    herd = [*losses("demo-1", 1, range(9)), *losses("demo-3", 1, range(9))]
    herd += save("demo-1", 2.0, 6.0) + save("demo-3", 2.0, 6.0)
    metered = [*losses("demo-1", 1, range(9)), *losses("demo-3", 1, range(4))]
    metered += [allowed("demo-1", 1.0, 80_000_000, until_s=9.0), *save("demo-1", 1.0, 2.0)]
    metered += [allowed("demo-3", 2.0, 80_000_000, until_s=9.0), *save("demo-3", 2.0, 3.0, step=2)]
    metered += [
        Digest(at_s=2.0, job="demo-3", life=1, step=2, digest="d"),
        Killed(at_s=4.0, job="demo-3", life=1),
        Restored(at_s=5.0, job="demo-3", life=2, step=2),
        *losses("demo-3", 3, [2.0, 3.0, 4.0], life=2, begin_s=6.0),
        CoordinatorKilled(at_s=5.0, job="coordinator", life=1),
        CoordinatorBack(at_s=7.5, job="coordinator", life=2),
    ]
    return (
        Act(metered=False, begin_s=0.0, end_s=10.0, records=herd),
        Act(metered=True, begin_s=0.0, end_s=10.0, records=metered),
    )


def test_figures_come_from_the_histories():
    """Writers, load, kill and outage of a hand-made demo."""
    found = figures(PLAY, *_acts(), [Restore(job="demo-3", step=2, digest="d")], "demo-3")
    assert (found.herd.peak_writers, found.herd.peak_over_capacity) == (2, 2.0)
    assert (found.metered.peak_writers, found.metered.peak_over_capacity) == (1, 0.8)
    assert (found.steps_lost, found.bit_exact, found.coordinator_down_s) == (2, True, 2.5)


@pytest.mark.parametrize(
    ("restore", "num_restored"),
    [
        (Restore(job="demo-3", step=2, digest="d"), 1),
        (Restore(job="demo-3", step=2, digest="other"), 0),
        (Restore(job="demo-3", step=1, digest="d"), 0),
        (Restore(job="demo-3", step=0, digest=""), 0),
    ],
)
def test_only_the_newest_state_as_it_was_counts_as_restored(restore, num_restored):
    """Another digest, an older step or nothing at all is no restore."""
    assert figures(PLAY, *_acts(), [restore], "demo-3").num_restored == num_restored
