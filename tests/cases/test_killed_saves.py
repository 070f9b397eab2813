"""Cases of processes that die, or end, in the middle of a save."""

import time
from pathlib import Path
from typing import Any

import pytest

from rampmeter.layout import Root
from support.case_state import loaded
from support.forked import Nursery

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
    """The save in flight is committed when the loop is left, however that is; the exit code is the program's."""
    program = programs.start(ENDING.format(root=str(tmp_path), num_values=NUM_VALUES, end=end))
    assert program.wait() == exit_code
    found = loaded(Root(tmp_path), NUM_VALUES)
    assert found is not None
    assert found.skipped == ()


NO_FORK = """
import os
os.register_at_fork(before=lambda: print("forked", flush=True))
"""


def test_c69_the_agent_never_forks(tmp_path: Path, programs: Nursery) -> None:
    """Threads only: a fork would copy locks that others hold, and an accelerator that does not survive it."""
    text = NO_FORK + ENDING.format(root=str(tmp_path), num_values=1000, end="pass")
    program = programs.start(text)
    assert program.wait() == 0
    assert program.lines == []
    assert loaded(Root(tmp_path)) is not None
