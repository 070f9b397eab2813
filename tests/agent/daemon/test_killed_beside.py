"""Kills of a trainer and of the process that writes for it: what comes back is one step, whoever was killed when."""

import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rampmeter.layout import Root
from support import crash_victim
from support.crash_check import check_recovered, check_root
from support.crash_lives import wait_for_writers
from support.crash_victim import KEEP, SIZE_BYTES, Told
from support.forked import Nursery, Program, nursery
from support.waiting import wait_for

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

MAX_STATES = KEEP + 2
NUM_INSTANTS = 4

PROGRAM = """
import os
os.environ["RAMPMETER_TEST_ORDER"] = {order!r}
from support import crash_victim
from support.armed import ArmedWriter
crash_victim.whole({root!r}, 0, mode="process", writer_class=ArmedWriter)
"""


@pytest.fixture(scope="module")
def programs() -> Iterator[Nursery]:
    with nursery() as found:
        yield found


def start(programs: Nursery, root: Root, order: Path) -> Program:
    """A trainer that saves again and again through a process beside it."""
    return programs.start(PROGRAM.format(order=str(order), root=str(root.path)))


def words(program: Program, *which: str) -> list[int]:
    """The numbers that it has told after one of these words."""
    return [int(line.split()[1]) for line in list(program.lines) if line.split()[0] in which]


def recover(root: Root) -> None:
    """The next start saves, and holds no more than what is kept and two."""
    before = root.committed_steps()[0].step
    crash_victim.whole(str(root.path), 1)
    check_recovered(root, MAX_STATES, SIZE_BYTES)
    assert root.committed_steps()[0].step > before


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("write __0_0.distcp", False),
        ("rename .metadata", False),
        ("rename MANIFEST.json", False),
        ("rename LATEST", True),
    ],
)
def test_a_writer_that_ends_before_an_operation(
    programs: Nursery, tmp_path: Path, name: str, counts: bool
) -> None:
    """Its save counts from the rename of the manifest on; the trainer finds out, and is killed when it has told."""
    root, order = Root(tmp_path / "root"), tmp_path / "order"
    crash_victim.bare(str(root.path), 2)
    order.write_text(name)
    program = start(programs, root, order)
    wait_for(lambda: words(program, "committed", "failed"), what="the save's end", limit_s=60.0)
    assert not order.exists()
    assert bool(words(program, "committed")) is counts
    program.kill()
    wait_for_writers(program)
    told = Told.of(program.lines)
    step = check_root(root, told, before=2)
    assert step >= words(program, "begun")[0] if counts else step == 2
    recover(root)


def test_kills_of_a_trainer_or_its_writer_at_random_instants(programs: Nursery, tmp_path: Path) -> None:
    """In a row under one root, the writer each second time, and its trainer soon after it."""
    draw, root, order = random.Random(2026), Root(tmp_path / "root"), tmp_path / "none"
    step, num_committed = 0, 0
    for number in range(NUM_INSTANTS):
        program = start(programs, root, order)
        num_lines = draw.randrange(6)
        wait_for(
            lambda p=program, n=num_lines: words(p, "writer") and len(p.lines) >= n + 2,
            what="a writer",
            limit_s=60.0,
        )
        threading.Event().wait(draw.uniform(0.0, 0.05))
        if number % 2:
            os.kill(words(program, "writer")[0], signal.SIGKILL)
            threading.Event().wait(draw.uniform(0.0, 0.1))
        program.kill()
        wait_for_writers(program)
        told = Told.of(program.lines)
        step = check_root(root, told, before=step)
        num_committed += told.committed > 0
    assert num_committed > 0
    recover(root)
