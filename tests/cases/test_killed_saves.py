"""Cases of processes that die, or end, in the middle of a save."""

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from rampmeter.layout import Root
from rampmeter.manifest import read_manifest
from support.case_state import loaded
from support.forked import Nursery
from support.servers import serving

NUM_VALUES = 1_000_000
SIZE_BYTES = 4 * NUM_VALUES
SLOW = 4_000_000
"""A save of one second."""


def disk_bytes(root: Root) -> int:
    """All that stands under the root."""
    return sum(path.stat().st_size for path in root.path.rglob("*") if path.is_file())


def test_c54_the_pointer_names_a_loadable_step_whenever_the_process_dies(root: Root, saving: Any) -> None:
    """Ten kills, from the dispatch to after the commit: the step before is there until the next one is committed."""
    for number in range(10):
        step = 2 * number + 1
        program = saving((step, None), (step + 1, SLOW))
        program.wait_for(f"begun {step + 1}")
        time.sleep(0.15 * number)  # the instant of the kill is what is varied
        program.kill()
        latest = root.read_latest()
        assert latest is not None
        assert latest.step in (step, step + 1)
        found = loaded(root, NUM_VALUES)
        assert found is not None
        assert found.step >= latest.step
        pointed = loaded(root, NUM_VALUES, step=latest.step)
        assert pointed is not None


PACED = """
from rampmeter.throttle import Throttle
set_rate = Throttle.set_rate
Throttle.set_rate = lambda self, rate, *end: set_rate(self, {rate} if rate is None else rate, *end)
"""
"""Without a coordinator saves go as fast as they can: here at this rate."""

KEEPING_ONE = """
import torch
import rampmeter
from rampmeter.events import SaveEnded, SaveStarted
def tell(event):
    if isinstance(event, SaveStarted):
        print("begun", flush=True)
    elif isinstance(event, SaveEnded):
        print("committed" if event.reason is None else "failed", flush=True)
options = {{"keep": 1, "keep_days": 0, "verify_every_s": None, "interval_max_s": 0.01}}
with rampmeter.Checkpointer({root!r}, on_event=tell, **options) as ckpt:
    state = {{"table": torch.zeros({num_values})}}
    step = ckpt.restore(state) or 0
    while True:
        step += 1
        state["table"].fill_(float(step))
        ckpt.step(step, state)
"""


def test_c54_the_retention_of_the_checkpointer_leaves_a_loadable_one_at_any_time(
    root: Root, programs: Nursery
) -> None:
    """It keeps one: six kills between the first commit and the third, the pointer names a loadable step each time."""
    text = PACED.format(rate=2 * SLOW) + KEEPING_ONE.format(root=str(root.path), num_values=NUM_VALUES)
    for number in range(6):
        program = programs.start(text)
        program.wait_for("committed")
        time.sleep(0.2 * number)  # the instant of the kill is what is varied
        program.kill()
        assert "failed" not in program.lines
        latest = root.read_latest()
        assert latest is not None
        assert loaded(root, NUM_VALUES) is not None
        assert loaded(root, NUM_VALUES, step=latest.step) is not None
        assert len(root.committed_steps()) <= 3, "the one before, which was loaded, and one that is going"


def test_c62_a_step_whose_save_was_cut_off_is_saved_again(root: Root, saving: Any) -> None:
    """The same step by the next attempt: it commits beside the leftover, which is gone by then."""
    program = saving((1, None), (2, SLOW))
    program.wait_for("begun 2")
    program.kill()
    again = saving((2, None))
    assert again.wait() == 0
    assert again.lines == ["begun 2", "committed 2"]
    assert [(name.attempt, name.step) for name in root.step_names()] == [(2, 2), (1, 1)]
    found = loaded(root, NUM_VALUES)
    assert found is not None
    assert found.step == 2


def test_c78_killed_saves_do_not_pile_up(root: Root, saving: Any) -> None:
    """Ten of them, then a normal run that keeps 2: the disk holds no more, and nobody else's directory is gone."""
    foreign = root.path / "step-notes"
    for step in range(1, 11):
        program = saving((step, SLOW))
        program.wait_for(f"begun {step}")
        program.kill()
        assert disk_bytes(root) <= 2 * SIZE_BYTES, "one attempt, and what the kill has left of it"
        foreign.mkdir(exist_ok=True)
    assert saving((11, None), (12, None), (13, None)).wait() == 0
    assert [name.step for name in root.step_names()] == [13, 12]
    assert disk_bytes(root) <= 2.1 * SIZE_BYTES
    assert foreign.is_dir()


ENDING = """
import sys, torch
import rampmeter
from rampmeter.events import SaveStarted
started = []
with rampmeter.Checkpointer({root!r}, interval_max_s=0.1, on_event=started.append) as ckpt:
    state, step = {{"table": torch.zeros({num_values})}}, 0
    ckpt.restore(state)
    while not any(isinstance(event, SaveStarted) for event in started):
        step += 1
        state["table"].fill_(float(step))
        ckpt.step(step, state)
    {end}
"""


@pytest.mark.parametrize(
    ("end", "exit_code"), [("pass", 0), ("sys.exit(0)", 0), ("sys.exit(7)", 7), ("raise ValueError", 1)]
)
def test_c76_the_last_save_does_not_die_with_the_process(
    tmp_path: Path, programs: Nursery, end: str, exit_code: int
) -> None:
    """A save of 3 s is committed when the loop is left, however that is; the exit code is the program's."""
    text = PACED.format(rate=SIZE_BYTES // 3) + ENDING.format(
        root=str(tmp_path), num_values=NUM_VALUES, end=end
    )
    program = programs.start(text)
    assert program.wait() == exit_code
    found = loaded(Root(tmp_path), NUM_VALUES)
    assert found is not None
    assert found.skipped == ()
    assert read_manifest(tmp_path / found.directory).timings.write_s > 2.5


NO_FORK = """
import os
os.register_at_fork(before=lambda: print("forked", flush=True))
"""


BEARING = """
import multiprocessing, os
from support.child_job import save_twice
def beget():
    child = multiprocessing.get_context({kind!r}).Process(target=save_twice, args=({root!r} + "-child", {url!r}))
    child.start()
    child.join()
    print("child", child.exitcode, flush=True)
save_twice({root!r}, {url!r}, beget)
"""


@pytest.mark.parametrize(("coordinated", "mode"), [(False, "thread"), (True, "thread"), (False, "process")])
def test_c69_the_agent_never_forks(tmp_path: Path, programs: Nursery, coordinated: bool, mode: str) -> None:
    """A fork would copy locks that others hold, and an accelerator that does not survive it.

    Threads, and where a process writes it is a program of its own.
    """
    with serving(tmp_path, "--fresh", RAMPMETER_STORE="sqlite") if coordinated else nullcontext() as found:
        root = str(tmp_path / "root")
        given = f"{root!r}, mode={mode!r}" + ("" if found is None else f", coordinator={found.url!r}")
        text = ENDING.replace("{root!r}", given).format(num_values=1000, end="print(ckpt.num_ungoverned)")
        program = programs.start(NO_FORK + text)
        assert program.wait() == 0
    assert program.lines == ["0"]
    assert loaded(Root(root)) is not None


@pytest.mark.parametrize("kind", ["fork", "spawn"])
def test_c69_a_child_of_training_has_a_client_of_its_own(
    tmp_path: Path, programs: Nursery, kind: str
) -> None:
    """In the middle of a job that holds a connection: child and parent both save with the coordinator's leave."""
    with serving(tmp_path, "--fresh", RAMPMETER_STORE="sqlite") as coordinator:
        text = BEARING.format(kind=kind, root=str(tmp_path / "root"), url=coordinator.url)
        program = programs.start(NO_FORK + text)
        assert program.wait() == 0, program.lines
    forks = ["forked"] if kind == "fork" else []
    assert program.lines == [*forks, "child 0"], "the fork of training's own and no other"
    assert loaded(Root(tmp_path / "root")) is not None
    assert loaded(Root(tmp_path / "root-child")) is not None
