"""A resumed run is the uninterrupted one, bit for bit: however its checkpoint was written, in whatever epoch."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

import rampmeter
from rampmeter.daemon.mode import Mode
from rampmeter.events import Event, SaveEnded, SaveStarted
from rampmeter.layout import Root
from rampmeter.restore import restore
from rampmeter.saving import Saver
from rampmeter.throttle import Throttle
from support.epochs import Training
from support.forked import Nursery, Program
from support.processes import is_running
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


def has_written_beside(saver: Saver) -> bool:
    """Whether a process beside this one has been given a save."""
    return saver._route._guardian._last_number > 0


@pytest.mark.parametrize("mode", [Mode.THREAD, Mode.PROCESS])
@pytest.mark.parametrize("waits", [True, False], ids=["sync", "async"])
def test_c90_a_resume_is_the_uninterrupted_run(
    tmp_path: Path, uninterrupted: Training, waits: bool, mode: Mode
) -> None:
    """Losses from data order, augmentation and dropout, schedule, scale and moments; with epochs after it."""
    root, run = Root(tmp_path), Training()
    for _ in range(NUM_STEPS):
        run.train_one()
    saver, throttle = Saver(root, root.claim_attempt(), job="test", mode=mode), Throttle()
    saved = saver.begin(NUM_STEPS, run.state, throttle)
    if waits:
        throttle.set_rate(None)
        assert saved.result(60.0).committed
    for _ in range(NUM_AFTER):
        run.train_one()  # while nothing of the checkpoint is written yet, in the second case
    throttle.set_rate(None)
    assert saved.result(60.0).committed
    assert has_written_beside(saver) is (mode is Mode.PROCESS)
    saver.close(60.0)
    step, resumed = go_on(tmp_path)
    assert step == NUM_STEPS
    assert resumed.losses == uninterrupted.losses[step : step + NUM_AFTER] == run.losses[step:]
    assert resumed.loader.epoch == 6
    assert resumed.scaler.get_scale() == run.scaler.get_scale() > 8.0
    assert resumed.scheduler.get_last_lr() == run.scheduler.get_last_lr()


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_c90_every_checkpoint_of_a_run_can_be_gone_on_from(
    tmp_path: Path, uninterrupted: Training, mode: str
) -> None:
    """Saved whenever it was due, written beside training: each one leads to the same losses."""
    events: list[Event] = []
    run, step = Training(), 0
    options: dict[str, Any] = OFTEN | {"mode": mode, "keep": 100}
    with rampmeter.Checkpointer(tmp_path, on_event=events.append, **options) as ckpt:
        assert ckpt.restore(run.state) is None
        while step < 4 * NUM_STEPS:
            run.train_one()
            step += 1
            ckpt.step(step, run.state)
            if step in STAYS_AT:
                wait_for(partial(begun_by_now, ckpt, step, run, events), what=f"a save of step {step}")
        assert has_written_beside(ckpt._saver) is (mode == "process")
    steps = [event.step for event in events if isinstance(event, SaveEnded) and event.reason is None]
    assert set(steps) >= STAYS_AT
    for saved_step in steps:
        found, resumed = go_on(tmp_path, saved_step)
        assert resumed.losses == uninterrupted.losses[found : found + NUM_AFTER]


def begun_by_now(ckpt: rampmeter.Checkpointer, step: int, run: Training, events: list[Event]) -> bool:
    """Training is faster than a save is due: it stays in this step until one has begun."""
    ckpt.step(step, run.state)
    return any(isinstance(event, SaveStarted) and event.step == step for event in events)


LIFE = """
import rampmeter
from rampmeter.events import SaveEnded
from support.epochs import Training
saved = []
def note(event):
    if isinstance(event, SaveEnded) and event.reason is None:
        saved.append(event.step)
run = Training(seed={seed})
options = dict(interval_max_s=0.01, seed=1, mode={mode!r}, on_event=note)
with rampmeter.Checkpointer({root!r}, **options) as ckpt:
    first = step = ckpt.restore(run.state) or 0
    print("from", first, flush=True)
    while step < {until}:
        run.train_one()
        step += 1
        print("loss", step, run.losses[-1], flush=True)
        ckpt.step(step, run.state)
    while {stays} and not any(step > first + 10 for step in saved):
        ckpt.step(step, run.state)
    print("writer", ckpt._saver._route._guardian.pid, flush=True)
    while {stays}:
        ckpt.step(step, run.state)
"""
"""One life of a run: trains up to a step and stays there, saving, until it is killed; the last one ends by itself."""


@pytest.mark.parametrize(("mode", "num_kills"), [("thread", 3), ("process", 1)])
def test_c90_killed_runs_go_on_as_the_uninterrupted_one(
    tmp_path: Path, programs: Nursery, uninterrupted: Training, mode: str, num_kills: int
) -> None:
    """SIGKILL in the middle of saves: each next process goes on from a later step, with the losses of one run."""
    last, before = len(uninterrupted.losses), 0
    for life in range(num_kills + 1):
        is_last = life == num_kills
        until = last if is_last else NUM_STEPS * (life + 1)
        text = LIFE.format(seed=3 + life, mode=mode, root=str(tmp_path), until=until, stays=not is_last)
        program = programs.start(text)
        if is_last:
            assert program.wait() == 0
        else:
            end_a_life(program, mode)
        told = [line.split() for line in program.lines]
        ((_, first),) = [words for words in told if words[0] == "from"]
        assert int(first) > before or life == 0
        before = int(first)
        losses = [(int(words[1]), words[2]) for words in told if words[0] == "loss"]
        assert losses == list(enumerate(uninterrupted.losses[before:until], start=before + 1))


def end_a_life(program: Program, mode: str) -> None:
    """SIGKILL once it has saved; and the end of the process that has written beside it."""
    wait_for(lambda: writers_of(program), what=f"a save after {program.lines[-1:]}", limit_s=60.0)
    program.kill()
    assert program.exit_code == -9
    (writer,) = writers_of(program)
    assert writer.isdigit() is (mode == "process")
    if writer.isdigit():
        wait_for(lambda: not is_running(int(writer)), what="the writer's end", limit_s=60.0)


def writers_of(program: Program) -> list[str]:
    """What it has told of who writes."""
    return [line.split()[1] for line in list(program.lines) if line.startswith("writer ")]
