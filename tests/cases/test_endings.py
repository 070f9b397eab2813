"""How a process ends while its storage hangs, or while it is told to go: soon, with its own exit code, nothing torn."""

import time
from pathlib import Path

import pytest

from rampmeter.flushthread import HUNG_S
from rampmeter.layout import Root
from support.case_state import loaded
from support.forked import Nursery

NUM_VALUES = 100_000
GONE_WITHIN_S = 10.0

HANGING = """
import atexit, os, pathlib, signal, sys, time
import torch
import rampmeter
from rampmeter import saving
from support.hanging_writer import HUNG, {writer}, hangs_under
saving.HUNG_S = {hung_s}
def mark(word):
    os.write(1, f"{{word}} {{time.monotonic()}}\\n".encode())
atexit.register(mark, "gone")  # the first that is registered is the last that is called: ours have all come to an end
def train(ckpt, until):
    step = 10
    while not until():
        step += 1
        ckpt.step(step, {{"table": torch.full(({num_values},), float(step))}})
ckpt = rampmeter.Checkpointer({root!r}, interval_max_s=0.1, notice_s=5.0, writer_class={writer}, mode={mode!r})
{start}
    train(ckpt, lambda: HUNG.is_set() or hangs_under(pathlib.Path({root!r})))
    mark("trained")
    {end}
"""
WITH = "with ckpt:"
FORGETS = "ckpt.__enter__()\nif True:"
TOLD = "os.kill(os.getpid(), signal.SIGTERM); train(ckpt, lambda: ckpt.should_stop); sys.exit(ckpt.exit_code)"


def gone_in_time(root: Root, programs: Nursery, end: str, exit_code: int, **more: str) -> None:
    """The program ends within the limit once its storage hangs, with this code, and leaves nothing that counts.

    All that is ours has ended by then, also where nobody calls close(); what is left is the interpreter's own exit.
    """
    real = end in ("pass", TOLD) or more.get("mode") == "process"  # once of each kind is enough
    given = {"start": WITH, "mode": "thread", "writer": "HangingWriter"} | more
    hung_s = HUNG_S if real else 1.0
    text = HANGING.format(root=str(root.path), num_values=NUM_VALUES, end=end, hung_s=hung_s, **given)
    program = programs.start(text)
    try:
        assert program.wait() == exit_code
    finally:
        ended_s = time.monotonic()
        if program.exit_code is None:
            program.kill()
    marks = {word: float(at_s) for word, at_s in (line.split() for line in program.lines)}
    assert marks["gone"] - marks["trained"] < GONE_WITHIN_S
    assert ended_s - marks["trained"] < GONE_WITHIN_S + 2.0, (
        "two for the exit of the interpreter and of torch"
    )
    assert loaded(root, NUM_VALUES) is None
    assert root.committed_steps() == []
    if given["mode"] == "thread":
        assert len(root.step_names()) == 1, "the leftover: nobody removes anything from storage that hangs"


@pytest.mark.parametrize(
    ("start", "end", "exit_code"),
    [
        (WITH, "pass", 0),
        (WITH, "sys.exit(7)", 7),
        (WITH, "raise ValueError", 1),
        (WITH, TOLD, 75),
        (FORGETS, "sys.exit(3)", 3),
    ],
    ids=["return", "sys.exit", "exception", "SIGTERM", "no close"],
)
def test_c76_storage_that_hangs_holds_no_process(
    root: Root, programs: Nursery, start: str, end: str, exit_code: int
) -> None:
    """A write that never comes back: the save is abandoned, what was committed before is whole."""
    gone_in_time(root, programs, end, exit_code, start=start)


@pytest.mark.parametrize(
    ("writer", "end", "exit_code"),
    [
        ("HangsInMkdir", "pass", 0),
        ("HangsInMkdir", TOLD, 75),
        ("HangsInMkdir", "raise ValueError", 1),
        ("HangsInOpen", "sys.exit(7)", 7),
        ("HangsInClose", "sys.exit(7)", 7),
        ("HangsInMetadata", "sys.exit(7)", 7),
    ],
)
def test_storage_that_hangs_before_the_first_byte_or_after_the_last_holds_none_either(
    root: Root, programs: Nursery, writer: str, end: str, exit_code: int
) -> None:
    """Calls that carry no bytes: nobody can see by what was written that they do not come back."""
    gone_in_time(root, programs, end, exit_code, writer=writer)


@pytest.mark.parametrize("writer", ["HangsInMkdir", "HangsInMetadata"])
def test_a_writer_process_whose_storage_hangs_holds_none_either(
    root: Root, programs: Nursery, writer: str
) -> None:
    """It is ended, too: nothing of the job is left."""
    gone_in_time(root, programs, "sys.exit(7)", 7, writer=writer, mode="process")
    (fifo,) = root.path.glob("hangs-*")
    assert not Path(f"/proc/{fifo.name.removeprefix('hangs-')}").exists()
