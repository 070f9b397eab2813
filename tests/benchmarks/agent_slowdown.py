"""What a flush costs training: steps beside our flush against steps beside plain `dcp.async_save`, in paired rounds.

A step computes in Python and in torch, as training loops do. In each round both sides save the same state while the
same loop runs; the figure is the median step beside ours over the median step beside theirs. `large` has 16 tensors,
`small` 6,000. Ours is `mode="auto"`: the small ones are written by a process beside training.
"""

import shutil
import statistics
import tempfile
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as plain
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

from benchmarks.summary import Result, summary
from rampmeter.core.clock import SystemClock
from rampmeter.layout import Root
from rampmeter.saving import Saver
from rampmeter.throttle import Throttle

CLOCK = SystemClock()
NUM_ROUNDS = 9
STATES = {"large": (16, 16 * 1024 * 1024), "small": (6000, 5000)}
"""How many tensors of how many floats: 1 GiB and 120 MB."""


def measure(place: Path, *, num_rounds: int = NUM_ROUNDS) -> dict[str, Result]:
    """`agent.slowdown_ratio.{large,small}`; `place` is a directory on a disk."""
    torch.set_num_threads(1)
    return {
        f"agent.slowdown_ratio.{name}": slowdown(place, *shape, num_rounds) for name, shape in STATES.items()
    }


def slowdown(place: Path, num_tensors: int, num_floats: int, num_rounds: int) -> Result:
    """The first round warms both sides up and does not count."""
    state = {f"t{i}": torch.randn(num_floats) for i in range(num_tensors)}
    directory = Path(tempfile.mkdtemp(dir=place, prefix="slowdown-"))
    root = Root(directory / "root")
    saver = Saver(root, root.claim_attempt(), job="bench")
    saver.warm_up(state)
    stager = DefaultStager(StagingOptions(False, False, False, False))
    quiet_s = step_beside(lambda: None)
    sides: dict[bool, Callable[[int], Any]] = {
        True: lambda number: begin_ours(saver, number, state),
        False: lambda number: plain.async_save(
            dict(state), checkpoint_id=directory / f"plain-{number}", async_stager=stager
        ),
    }
    ratios, ours, theirs = [], [], []
    for number in range(num_rounds + 1):
        seconds = {}
        for is_ours in (True, False) if number % 2 else (False, True):
            seconds[is_ours] = step_beside(lambda side=sides[is_ours], number=number: side(number))
        for old in [*directory.glob("root/step-*"), *directory.glob("plain-*")]:
            shutil.rmtree(old)
        ratios.append(seconds[True] / seconds[False])
        ours.append(seconds[True] / quiet_s)
        theirs.append(seconds[False] / quiet_s)
    saver.close(60.0)
    stager.close()
    shutil.rmtree(directory)
    return summary(
        ratios[1:],
        ours_over_quiet=round(statistics.median(ours[1:]), 3),
        plain_over_quiet=round(statistics.median(theirs[1:]), 3),
    )


def begin_ours(saver: Saver, number: int, state: dict[str, torch.Tensor]) -> "Future[Any]":
    throttle = Throttle()
    throttle.set_rate(None)
    return saver.begin(number + 1, state, throttle)


def step_beside(begin: Callable[[], Any]) -> float:
    """The mean step while the flush runs, after its stall; of half a second where there is none."""
    result = begin()
    begun_s, num_steps = CLOCK.now(), 0
    while CLOCK.now() < begun_s + 0.5 if result is None else not result.done():
        one_step()
        num_steps += 1
    return (CLOCK.now() - begun_s) / max(1, num_steps)


WEIGHT = torch.randn(128, 128)


def one_step() -> None:
    """About a millisecond, half of it in the interpreter."""
    total = 0
    for number in range(5000):
        total += number
    value = torch.randn(128, 128)
    for _ in range(8):
        value = torch.tanh(value @ WEIGHT)
