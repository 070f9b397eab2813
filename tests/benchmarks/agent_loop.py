"""What the agent costs a training loop: an idle `step()`, and a loop whose coordinator never answers.

agent.step_idle_us   median time of `step()` when nothing is due, in microseconds
agent.loop_ratio     throughput of our loop, coordinator unreachable, over the same loop with plain `dcp.async_save` at
                     the same steps; paired, interleaved rounds
"""

import tempfile
import time
import warnings
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict

import rampmeter.events
from benchmarks.summary import Result, summary

NUM_ROUNDS = 9
ROUND_S = 5.0
"""Of our loop: a few saves, however fast the machine computes."""

WIDTH = 1024
HIDDEN = 512
UNREACHABLE = "http://127.0.0.1:9"


class Loop:
    """A model with Adam, about 12 MiB of state."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH))
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.batch = torch.randn(16, WIDTH)

    @property
    def state(self):
        return {"model": self.model, "optimizer": self.optimizer}

    def train_one(self):
        self.optimizer.zero_grad()
        (self.model(self.batch) - self.batch).pow(2).mean().backward()
        self.optimizer.step()


def ours(loop: Loop, root: Path) -> tuple[float, int, list[int]]:
    """Seconds with our agent, the steps in them, and those at which it saved."""
    saved, step = [], 0

    def note(event):
        if isinstance(event, rampmeter.events.SaveStarted):
            saved.append(event.step)

    with rampmeter.Checkpointer(
        root, coordinator=UNREACHABLE, interval_max_s=1.5, on_event=note, seed=len(str(root))
    ) as ckpt:
        begun_s = time.perf_counter()
        while time.perf_counter() < begun_s + ROUND_S:
            step += 1
            loop.train_one()
            ckpt.step(step, loop.state)
        took_s = time.perf_counter() - begun_s
    return took_s, step, saved


def plain(loop: Loop, root: Path, num_steps: int, saves: list[int]) -> float:
    """Seconds for as many steps with the documented `dcp.async_save` at the same steps."""
    pending = None
    begun_s = time.perf_counter()
    for step in range(1, num_steps + 1):
        loop.train_one()
        if step in saves:
            if pending is not None:
                pending.result()
            model, optimizer = get_state_dict(loop.model, loop.optimizer)
            pending = dcp.async_save(
                {"model": model, "optimizer": optimizer}, checkpoint_id=str(root / str(step)), no_dist=True
            )
    took_s = time.perf_counter() - begun_s
    if pending is not None:
        pending.result()
    return took_s


def loop_ratio() -> Result:
    loop, ratios, saves = Loop(), [], 0
    for _ in range(NUM_ROUNDS):
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
            ours_s, num_steps, saved = ours(loop, Path(first))
            ratios.append(plain(loop, Path(second), num_steps, saved) / ours_s)
            saves += len(saved)
    assert saves >= 2 * NUM_ROUNDS, f"only {saves} checkpoints happened"
    return summary(ratios, saves=saves)


def step_idle_us() -> Result:
    loop, times_us = Loop(), []
    with tempfile.TemporaryDirectory() as root, rampmeter.Checkpointer(root, interval_min_s=1e6) as ckpt:
        ckpt.step(0, loop.state)
        for step in range(1, 20_001):
            begun_s = time.perf_counter()
            ckpt.step(step, loop.state)
            times_us.append((time.perf_counter() - begun_s) * 1e6)
    return summary(times_us, "us")


def measure() -> dict[str, Result]:
    """All figures of this file, as build/bench.json has them."""
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")
    torch.set_num_threads(1)
    return {"agent.step_idle_us": step_idle_us(), "agent.loop_ratio": loop_ratio()}
