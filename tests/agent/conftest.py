"""Helpers of the agent's tests: a root, a small training run that consumes randomness, and one way to save it."""

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rampmeter.layout import Root
from rampmeter.saving import Saver, SaveReport
from rampmeter.throttle import Throttle
from support.rank_programs import Ranks, rank_programs
from support.scripted import Answers, Scripted

LIMIT_S = 200.0


class Sampler:
    """A data position with the state_dict protocol."""

    def __init__(self) -> None:
        self.position = 0

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


@dataclass
class Run:
    """Adam, dropout, a scheduler and all three random generators: whatever is not restored changes the losses."""

    width: int = 32
    model: nn.Module = field(init=False)
    optim: torch.optim.Optimizer = field(init=False)
    sched: Any = field(init=False)
    sampler: Sampler = field(init=False, default_factory=Sampler)
    losses: list[float] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.model = nn.Sequential(
            nn.Linear(self.width, self.width),
            nn.BatchNorm1d(self.width),
            nn.Dropout(0.3),
            nn.Linear(self.width, 4),
        )
        self.optim = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.sched = torch.optim.lr_scheduler.StepLR(self.optim, step_size=3, gamma=0.7)

    @property
    def state(self) -> dict[str, Any]:
        return {"model": self.model, "optim": self.optim, "sched": self.sched, "sampler": self.sampler}

    def train(self, num_steps: int) -> None:
        for _ in range(num_steps):
            scale = random.random() + float(np.random.random())
            batch = torch.randn(8, self.width) * scale + self.sampler.position
            loss = self.model(batch).square().mean()
            self.optim.zero_grad()
            loss.backward()
            self.optim.step()
            self.sched.step()
            self.sampler.position += 1
            self.losses.append(float(loss.detach()))


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """Runs programs of several ranks."""
    with rank_programs() as programs:
        yield programs


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path / "root")


@pytest.fixture
def make_run() -> Callable[..., Run]:
    def make(seed: int = 7, **kwargs: Any) -> Run:
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        return Run(**kwargs)

    return make


@pytest.fixture
def make_saver(root: Root) -> Iterator[Callable[..., Saver]]:
    savers: list[Saver] = []

    def make(**kwargs: Any) -> Saver:
        claim = kwargs.pop("claim", None) or root.claim_attempt()
        saver = Saver(root, claim, job="test", **kwargs)
        savers.append(saver)
        return saver

    yield make
    for saver in savers:
        saver.close(limit_s=0.0)


@pytest.fixture
def save() -> Callable[..., SaveReport]:
    """Saves at full speed (or at a rate) and waits for the report."""

    def run(saver: Saver, step: int, state: Any, bytes_per_s: int | None = None, **kwargs: Any) -> SaveReport:
        throttle = Throttle()
        throttle.set_rate(bytes_per_s)
        return saver.begin(step, state, throttle, **kwargs).result(LIMIT_S)

    return run


@pytest.fixture
def serve() -> Iterator[Callable[[Answers], Scripted]]:
    servers: list[Scripted] = []

    def start(answers: Answers) -> Scripted:
        server = Scripted(answers)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
