"""A resumed run is the uninterrupted one, bit for bit: however its checkpoint was written, in whatever epoch."""

from functools import partial
from pathlib import Path

import pytest

import rampmeter
from rampmeter.events import Event, SaveEnded, SaveStarted
from rampmeter.layout import Root
from rampmeter.restore import restore
from rampmeter.saving import Saver
from rampmeter.throttle import Throttle
from support.epochs import Training
from support.waiting import wait_for

NUM_STEPS = 37
"""Ten batches are an epoch: the checkpoint is in the middle of the fourth."""

NUM_AFTER = 30
STAYS_AT = {NUM_STEPS // 2, 2 * NUM_STEPS, 3 * NUM_STEPS}
OFTEN = {"interval_max_s": 0.01, "seed": 1}


def go_on(root: Path, step: int | None = None) -> tuple[int, Training]:
    """What a new process makes of it, whose own generators are elsewhere; the step and the run."""
    run = Training(seed=99)
    run.train_one()
    found = restore(Root(root), run.state, step=step)
    assert found is not None
    run.losses = []
    for _ in range(NUM_AFTER):
        run.train_one()
    return found.step, run


@pytest.fixture(scope="module")
def uninterrupted() -> Training:
    run = Training()
    for _ in range(4 * NUM_STEPS + NUM_AFTER):
        run.train_one()
    return run


@pytest.mark.parametrize("waits", [True, False], ids=["sync", "async"])
def test_c90_a_resume_is_the_uninterrupted_run(tmp_path: Path, uninterrupted: Training, waits: bool) -> None:
    """Losses from data order, augmentation and dropout, schedule, scale and moments; with epochs after it."""
    root, run = Root(tmp_path), Training()
    for _ in range(NUM_STEPS):
        run.train_one()
    saver, throttle = Saver(root, root.claim_attempt(), job="test"), Throttle()
    saved = saver.begin(NUM_STEPS, run.state, throttle)
    if waits:
        throttle.set_rate(None)
        assert saved.result(60.0).committed
    for _ in range(NUM_AFTER):
        run.train_one()  # while nothing of the checkpoint is written yet, in the second case
    throttle.set_rate(None)
    assert saved.result(60.0).committed
    saver.close(60.0)
    step, resumed = go_on(tmp_path)
    assert step == NUM_STEPS
    assert resumed.losses == uninterrupted.losses[step : step + NUM_AFTER] == run.losses[step:]
    assert resumed.loader.epoch == 6
    assert resumed.scaler.get_scale() == run.scaler.get_scale() > 8.0
    assert resumed.scheduler.get_last_lr() == run.scheduler.get_last_lr()


def test_c90_every_checkpoint_of_a_run_can_be_gone_on_from(tmp_path: Path, uninterrupted: Training) -> None:
    """Saved whenever it was due, written beside training: each one leads to the same losses."""
    events: list[Event] = []
    run, step = Training(), 0
    with rampmeter.Checkpointer(tmp_path, on_event=events.append, keep=100, **OFTEN) as ckpt:  # type: ignore[arg-type]
        assert ckpt.restore(run.state) is None
        while step < 4 * NUM_STEPS:
            run.train_one()
            step += 1
            ckpt.step(step, run.state)
            if step in STAYS_AT:
                wait_for(partial(begun_by_now, ckpt, step, run, events), what=f"a save of step {step}")
    steps = [event.step for event in events if isinstance(event, SaveEnded) and event.reason is None]
    assert set(steps) >= STAYS_AT
    for saved_step in steps:
        found, resumed = go_on(tmp_path, saved_step)
        assert resumed.losses == uninterrupted.losses[found : found + NUM_AFTER]


def begun_by_now(ckpt: rampmeter.Checkpointer, step: int, run: Training, events: list[Event]) -> bool:
    """Training is faster than a save is due: it stays in this step until one has begun."""
    ckpt.step(step, run.state)
    return any(isinstance(event, SaveStarted) and event.step == step for event in events)
