"""How a process ends while its storage hangs, or while it is told to go: soon, with its own exit code, nothing torn."""

import time

import pytest

from rampmeter.layout import Root
from support.case_state import loaded
from support.forked import Nursery

NUM_VALUES = 100_000
GONE_WITHIN_S = 10.0

HANGING = """
import os, signal, sys
import torch
import rampmeter
from rampmeter.flushthread import wait_while_it_moves
from support.hanging_writer import HUNG, HangingWriter
wait_while_it_moves.__kwdefaults__.update({patience})
def train(ckpt, until):
    step = 10
    while not until():
        step += 1
        ckpt.step(step, {{"table": torch.full(({num_values},), float(step))}})
ckpt = rampmeter.Checkpointer({root!r}, interval_max_s=0.1, notice_s=5.0, writer_class=HangingWriter)
{start}
    train(ckpt, HUNG.is_set)
    print("hung", flush=True)
    {end}
"""
WITH = "with ckpt:"
FORGETS = "ckpt.__enter__()\nif True:"
TOLD = "os.kill(os.getpid(), signal.SIGTERM); train(ckpt, lambda: ckpt.should_stop); sys.exit(ckpt.exit_code)"


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
    patience = {} if end in ("pass", TOLD) else {"hung_s": 1.0}  # the real one twice is enough
    text = HANGING.format(root=str(root.path), num_values=NUM_VALUES, start=start, end=end, patience=patience)
    program = programs.start(text)
    program.wait_for("hung")
    since_s = time.monotonic()
    try:
        assert program.wait() == exit_code
    finally:
        if program.exit_code is None:
            program.kill()
    assert time.monotonic() - since_s < GONE_WITHIN_S + 2.0, "two for a machine that does something else, too"
    assert loaded(root, NUM_VALUES) is None
    (leftover,) = root.step_names()
    assert not root.is_committed(leftover)
