"""Cases of jobs that are told to go: by whichever signal, wherever their loop is, with however little time."""

import os
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from rampmeter.layout import Root
from support.case_state import loaded
from support.forked import Nursery, Program
from support.servers import serving
from support.waiting import wait_for

NUM_VALUES = 1_000_000
GRACE_S = 15.0

TOLD = """
import os, signal, sys, time
import torch
import rampmeter
state = {{"table": torch.zeros({num_values})}}
def say(*words):
    print(*words, flush=True)
with rampmeter.Checkpointer({root!r}, interval_min_s=1000.0, notice_s={notice_s}, coordinator={url!r}) as ckpt:
    step = ckpt.restore(state) or 0
    say("started")
    {before}
    while not ckpt.should_stop:
        step += 1
        state["table"].fill_(float(step))
        ckpt.step(step, state)
        time.sleep(0.005)
        if step == 20:
            say("trains")
        {each}
    say("left", step)
sys.exit(ckpt.exit_code)
"""
EVALUATION = """if step == 20:
            say("evaluates")
            end = time.monotonic() + 20.0
            while time.monotonic() < end and not ckpt.poll():
                time.sleep(0.005)
            say("evaluated", int(time.monotonic() < end))"""


def start(programs: Nursery, root: Root, *, before: str = "pass", each: str = "pass", **more: Any) -> Program:
    """A job that is never due by itself."""
    options = {"num_values": NUM_VALUES, "notice_s": 60.0, "url": None} | more
    return programs.start(TOLD.format(root=str(root.path), before=before, each=each, **options))


def tell(program: Program, number: signal.Signals = signal.SIGTERM) -> None:
    """The job is to go."""
    assert program.pid is not None
    os.kill(program.pid, number)


def saved_step(root: Root, num_values: int = NUM_VALUES) -> int | None:
    found = loaded(root, num_values)
    return None if found is None else found.step


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_c95_each_way_to_be_told_is_the_same_notice(
    programs: Nursery, root: Root, number: signal.Signals
) -> None:
    """One save, then the end, with the exit code that has supervisors start it again."""
    program = start(programs, root)
    program.wait_for("trains")
    tell(program, number)
    assert program.wait() == 75
    (name,) = root.committed_steps()
    assert saved_step(root) == name.step >= 20


def test_c96_an_evaluation_is_left_at_once(programs: Nursery, root: Root) -> None:
    """A loop of 20 s that asks `poll`: the save is made in the next step, not after the 20 s."""
    program = start(programs, root, each=EVALUATION)
    program.wait_for("evaluates")
    tell(program)
    assert program.wait() == 75
    assert "evaluated 1" in program.lines
    assert saved_step(root) is not None


def test_c96_told_before_the_first_step(programs: Nursery, root: Root) -> None:
    """The first step is saved, and is the last."""
    program = start(programs, root, before="os.kill(os.getpid(), signal.SIGTERM)")
    assert program.wait() == 75
    step = saved_step(root)
    assert step is not None
    (left,) = (int(line.split()[1]) for line in program.lines if line.startswith("left"))
    assert step <= left < 1000


@pytest.mark.system
@pytest.mark.parametrize(
    ("num_values", "fits"), [(2_000_000, True), (40_000_000, False)], ids=["1 s", "20 s"]
)
def test_c94_some_seconds_of_grace(
    programs: Nursery, root: Root, tmp_path: Path, num_values: int, fits: bool
) -> None:
    """A save that fits is committed in them; one of 20 s is not begun, and the job has gone before it is killed."""
    earlier = start(programs, root, num_values=num_values)
    earlier.wait_for("trains")
    tell(earlier)
    assert earlier.wait() == 75
    before = saved_step(root, num_values)
    assert before is not None
    with serving(tmp_path, "--fresh", RAMPMETER_CAPACITY="10MB/s") as coordinator:
        program = start(programs, root, num_values=num_values, notice_s=GRACE_S, url=coordinator.url)
        program.wait_for("started")
        jobs = f"{coordinator.url}/v1/pools/default/jobs"
        wait_for(lambda: any(row.get("num_bytes") for row in httpx.get(jobs).json()["jobs"]), what="its size")
        tell(program)
        wait_for(lambda: program.exit_code is not None, what="its end within the grace", limit_s=GRACE_S)
    assert program.exit_code == 75
    step = saved_step(root, num_values)
    assert step is not None
    assert (step > before) is fits
    assert root.step_names() == root.committed_steps()
