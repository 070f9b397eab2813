"""One life of a victim after another, each of them killed somewhere, and what was found after each."""

import contextlib
import os
import shutil
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from rampmeter.layout import Root
from support import crash_victim, points
from support.crash_victim import Told
from support.forked import Nursery, Program
from support.processes import is_running
from support.waiting import wait_for

PROGRAM = """
from pathlib import Path
from support import crash_victim, points
crash_victim.{kind}({path!r}, {num_saves}, arm=lambda: points.{arm})
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """A kind of victim and how many saves it makes. `again`: in a root where an attempt has already saved twice."""

    kind: str
    num_saves: int = 1
    again: bool = False

    def start(self, nursery: Nursery, root: Root, arm: str = "nowhere()") -> Program:
        """In a process of its own, which (or whose rank 0) begins with this call of a function of `points`."""
        path = str(root.path)
        text = PROGRAM.format(
            arm=arm.format(path=f"Path({path!r})"), kind=self.kind, path=path, num_saves=self.num_saves
        )
        return nursery.start(text)

    def recover(self, nursery: Nursery, root: Root) -> None:
        """The next start: it sweeps, goes on from what is there and saves once more. In this process if it is one."""
        if self.kind.startswith("two_ranks"):
            assert replace(self, num_saves=1).start(nursery, root).wait() == 0
        else:
            getattr(crash_victim, self.kind)(str(root.path), 1)


def trace_of(nursery: Nursery, root: Root, life: Life) -> list[str]:
    """The names of all operations of a whole life."""
    program = life.start(nursery, root, "trace({path})")
    assert program.wait() == 0
    return [
        line.removeprefix(points.TRACE).strip() for line in program.lines if line.startswith(points.TRACE)
    ]


def numbers_worth_a_kill(trace: Sequence[str]) -> list[int]:
    """All operations, but of many like ones in a row only the first, the middle and the last."""
    numbers: list[int] = []
    for _, group in groupby(enumerate(trace), key=lambda item: item[1]):
        run = [number for number, _ in group]
        numbers += sorted({run[0], run[len(run) // 2], run[-1]})
    return numbers


def copy_of(template: Path, where: Path) -> Root:
    """A root of its own with what stands in the template, if anything does."""
    if template.exists():
        shutil.copytree(template, where)
    return Root(where)


def killed_after(program: Program, delay_s: float, *, num_lines: int = 0) -> Told:
    """SIGKILL so long after it has said so much, which it does at its own pace; what it had told by then."""
    wait_for(lambda: len(program.lines) >= num_lines, what=f"{num_lines} lines, not only {program.lines}")
    threading.Event().wait(delay_s)
    if program.exit_code is None:
        program.kill()
    return Told.of(program.lines)


def ranks_killed_after(
    program: Program,
    delay_s: float,
    *,
    first: int | None,
    apart_s: float = 0.0,
    num_lines: int = crash_victim.NUM_RANKS,
) -> Told:
    """SIGKILL to all ranks, or to one and then, as a supervisor does it, to the others; and the end of their writers.

    The delay counts from when they have said so much; the first lines name the ranks.
    """
    wait_for(
        lambda: len(_pids(program)) == crash_victim.NUM_RANKS and len(program.lines) >= num_lines,
        what=f"{num_lines} lines, not only {program.lines}",
        limit_s=60.0,
    )
    threading.Event().wait(delay_s)
    pids = _pids(program)
    if first is not None:
        os.kill(pids.pop(first), signal.SIGKILL)
        threading.Event().wait(apart_s)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it has found the other one gone, and has ended
            os.kill(pid, signal.SIGKILL)
    program.wait()
    wait_for_writers(program)
    return Told.of(program.lines)


def wait_for_writers(program: Program) -> None:
    """The end of those that it had: an orphan may finish what it had begun."""
    for pid in _pids(program, "writer"):
        wait_for(lambda pid=pid: not is_running(pid), what="the end of the writers", limit_s=60.0)


def _pids(program: Program, word: str = "pid") -> list[int]:
    return [int(line.split()[1]) for line in list(program.lines) if line.startswith(f"{word} ")]
