"""What the cases share: a root, a saver, processes that can be killed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rampmeter.layout import Root
from rampmeter.report import SaveReport
from rampmeter.saving import Saver
from rampmeter.throttle import Throttle
from support.forked import Nursery, nursery

NUM_VALUES = 1_000_000
LIMIT_S = 60.0


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path / "root")


@pytest.fixture
def save(root: Root) -> Iterator[Callable[..., SaveReport]]:
    """Saves a step, all of whose values are its number."""
    saver = Saver(root, root.claim_attempt(), job="case")

    def run(step: int, **more: Any) -> SaveReport:
        throttle = Throttle()
        throttle.set_rate(None)
        return saver.begin(step, {"table": torch.full((1000,), float(step))}, throttle, **more).result(
            LIMIT_S
        )

    yield run
    saver.close(0.0)


@pytest.fixture(scope="session")
def programs() -> Iterator[Nursery]:
    with nursery() as found:
        yield found


PROGRAM = f"""
import sys, torch
import rampmeter
from rampmeter.layout import Root
from rampmeter.saving import Saver
from rampmeter.throttle import Throttle
from support.case_state import keep_newest, sweep_leftovers

def run(path, saves, keep=2):
    root = Root(path)
    claim = root.claim_attempt()
    sweep_leftovers(root, claim.number)
    saver = Saver(root, claim, job="case")
    for step, rate in saves:
        throttle = Throttle()
        throttle.set_rate(rate)
        result = saver.begin(step, {{"table": torch.full(({NUM_VALUES},), float(step))}}, throttle)
        print("begun", step, flush=True)
        report = result.result()
        print("committed" if report.committed else "failed", step, flush=True)
        keep_newest(root, keep)
    saver.close(60.0)
"""


@pytest.fixture
def saving(programs: Nursery, root: Root) -> Callable[..., Any]:
    """A process that saves steps of 4 MB at their rates (None = at once), as an attempt of its own."""

    def start(*saves: tuple[int, int | None], keep: int = 2) -> Any:
        return programs.start(f"{PROGRAM}\nrun({str(root.path)!r}, {saves!r}, {keep})")

    return start
