"""What a flush costs training: steps beside our flush against steps beside plain `dcp.async_save`, in paired rounds.

A step computes in Python and in torch, as training loops do. In each round four sides save the same state while the
same loop runs: ours and plain, each in a thread and in a process of its own. A figure is the mean step beside ours over
the mean step beside theirs in the same round. `large` has 16 tensors, `small` 6,000. The loop runs for the first
quarter of each tenth of a second: all parts of a flush are seen, and one of 6,000 tensors in a thread, which a loop
slows as much as it slows the loop, is over sooner.

agent.slowdown_ratio.NAME                      ours with `mode="auto"` over plain in a thread, which is its default
agent.slowdown_ratio.NAME.OURS_over_plain_THEIRS   the four pairs; beside each what a step and a flush took
"""

import os
import resource
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as plain
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from benchmarks.summary import Result, summary
from rampmeter.core.clock import SystemClock
from rampmeter.daemon.arena import host_bytes
from rampmeter.daemon.mode import Mode, chosen
from rampmeter.layout import Root
from rampmeter.saving import Saver
from rampmeter.throttle import Throttle

CLOCK = SystemClock()
NUM_ROUNDS = 9
STATES = {"large": (16, 2 * 1024 * 1024), "small": (6000, 5_000)}
"""How many tensors of how many floats: 128 MiB and 120 MB."""

MODES = (Mode.THREAD, Mode.PROCESS)
QUIET_S = 0.5
TRAIN_S = 0.025
REST_S = 0.075

Begin = Callable[[int], "Future[Any]"]
"""Starts the save of a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """The mean step while a flush ran, and how long it ran, after its stall."""

    step_s: float
    flush_s: float


def measure(place: Path, *, num_rounds: int = NUM_ROUNDS) -> dict[str, Result]:
    """All figures; `place` is a directory on a disk."""
    torch.set_num_threads(1)
    found: dict[str, Result] = {}
    with one_rank():
        for name, shape in STATES.items():
            found |= slowdown(place, f"agent.slowdown_ratio.{name}", *shape, num_rounds)
    return found


@contextmanager
def one_rank() -> Iterator[None]:
    """Plain DCP wants a process group before it starts its process, and a file for each tensor that goes there."""
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def slowdown(
    place: Path, prefix: str, num_tensors: int, num_floats: int, num_rounds: int
) -> dict[str, Result]:
    """The first round warms all sides up and does not count."""
    state = {f"t{i}": torch.randn(num_floats) for i in range(num_tensors)}
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(dir=place, prefix="slowdown-"))
        stack.callback(shutil.rmtree, directory)
        ours = {mode: stack.enter_context(our_side(directory, mode, state)) for mode in MODES}
        theirs = {mode: stack.enter_context(plain_side(directory, mode, state)) for mode in MODES}
        quiet_s = quiet_step_s()
        rounds = [one_round(directory, [*ours.values(), *theirs.values()], n) for n in range(num_rounds + 1)]
    sides = list(zip(*rounds[1:], strict=True))
    of_ours, of_theirs = dict(zip(MODES, sides[:2], strict=True)), dict(zip(MODES, sides[2:], strict=True))
    auto = chosen(Mode.AUTO, num_tensors=num_tensors, host_bytes=host_bytes(state), obstacle=None)
    found = {prefix: ratio(of_ours[auto], of_theirs[Mode.THREAD], quiet_s)}
    for mine in MODES:
        for other in MODES:
            name = f"{prefix}.{mine}_over_plain_{other}"
            found[name] = ratio(of_ours[mine], of_theirs[other], quiet_s)
    return found


def one_round(directory: Path, sides: list[Begin], number: int) -> list[Beside]:
    """All sides once, each time another one first; what they wrote is removed before the next round."""
    found: dict[int, Beside] = {}
    for turn in range(len(sides)):
        side = (turn + number) % len(sides)
        found[side] = step_beside(sides[side], number)
    for old in [*directory.glob("*/step-*"), *directory.glob("plain-*")]:
        shutil.rmtree(old)
    return [found[side] for side in range(len(sides))]


def ratio(ours: tuple[Beside, ...], theirs: tuple[Beside, ...], quiet_s: float) -> Result:
    def middle(sides: tuple[Beside, ...], field: str) -> float:
        return statistics.median(getattr(side, field) for side in sides)

    return summary(
        [mine.step_s / other.step_s for mine, other in zip(ours, theirs, strict=True)],
        ours_over_quiet=round(middle(ours, "step_s") / quiet_s, 3),
        plain_over_quiet=round(middle(theirs, "step_s") / quiet_s, 3),
        ours_flush_s=round(middle(ours, "flush_s"), 3),
        plain_flush_s=round(middle(theirs, "flush_s"), 3),
    )


@contextmanager
def our_side(directory: Path, mode: Mode, state: dict[str, torch.Tensor]) -> Iterator[Begin]:
    root = Root(directory / mode)
    saver = Saver(root, root.claim_attempt(), job="bench", mode=mode)
    saver.warm_up(state)

    def begin(number: int) -> "Future[Any]":
        throttle = Throttle()
        throttle.set_rate(None)
        return saver.begin(number + 1, state, throttle)

    yield begin
    saver.close(60.0)


@contextmanager
def plain_side(directory: Path, mode: Mode, state: dict[str, torch.Tensor]) -> Iterator[Begin]:
    """With a stager that is kept, as ours is; what goes to a process is shared with it and not copied once more."""
    is_process = mode is Mode.PROCESS
    stager = DefaultStager(
        StagingOptions(
            use_pinned_memory=False,
            use_shared_memory=is_process,
            use_async_staging=False,
            use_non_blocking_copy=False,
        )
    )
    kind = AsyncCheckpointerType.PROCESS if is_process else AsyncCheckpointerType.THREAD

    def begin(number: int) -> "Future[Any]":
        return plain.async_save(
            dict(state),
            checkpoint_id=directory / f"plain-{mode}-{number}",
            async_checkpointer_type=kind,
            async_stager=stager,
        )

    yield begin
    stager.close()


def step_beside(begin: Begin, number: int) -> Beside:
    """Train while the flush runs, after its stall; a part of the time."""
    result = begin(number)
    begun_s = CLOCK.now()
    trained_s, num_steps = train(begun_s + TRAIN_S, result.done)
    while not wait([result], timeout=REST_S).done:
        seconds, steps = train(CLOCK.now() + TRAIN_S, result.done)
        trained_s, num_steps = trained_s + seconds, num_steps + steps
    result.result()
    return Beside(step_s=trained_s / num_steps, flush_s=CLOCK.now() - begun_s)


def quiet_step_s() -> float:
    """A step beside nothing."""
    seconds, num_steps = train(CLOCK.now() + QUIET_S, lambda: False)
    return seconds / num_steps


def train(until_s: float, is_over: Callable[[], bool]) -> tuple[float, int]:
    """Seconds and steps, at least one."""
    begun_s, num_steps = CLOCK.now(), 0
    while num_steps == 0 or (CLOCK.now() < until_s and not is_over()):
        one_step()
        num_steps += 1
    return CLOCK.now() - begun_s, num_steps


WEIGHT = torch.randn(128, 128)


def one_step() -> None:
    """About a millisecond, half of it in the interpreter."""
    total = 0
    for number in range(5000):
        total += number
    value = torch.randn(128, 128)
    for _ in range(8):
        value = torch.tanh(value @ WEIGHT)
