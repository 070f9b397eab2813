"""Kills at named points and at random instants: restore gives exactly one committed step, bit for bit.

The victim trains and saves in a process of its own; points are reached by an os function that ends the process instead
of returning, so that nothing in the product knows of them.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import torch

from rampmeter import retention
from rampmeter.layout import Root
from rampmeter.restore import restore
from support.roots import nothing

LIMIT_S = 120.0

# Step n of the victim holds tensors full of n, so that a mixture of two steps is seen at once.
VICTIM = """
import json, os, sys, threading, torch
from pathlib import Path
from rampmeter import retention
from rampmeter.layout import Root
from rampmeter.saving import Saver
from rampmeter.throttle import Throttle

def die_when(matches):
    fsync, replace, move, unlink, rmdir = os.fsync, Path.replace, Path.rename, Path.unlink, Path.rmdir
    def reach(point):
        if matches(point):
            os._exit(9)
    def sync(descriptor):
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        reach(f"before sync {path.name}")
        fsync(descriptor)
        reach(f"after sync {path.name}")
    def rename(self, target):
        reach(f"before rename {target.name}")
        result = replace(self, target)
        reach(f"after rename {target.name}")
        return result
    def rename_token(self, target):
        result = move(self, target)
        reach(f"after rename {target.name}")
        return result
    def remove_directory(self):
        reach(f"before rmdir {self.name}")
        rmdir(self)
    def remove(self, missing_ok=False):
        unlink(self, missing_ok=missing_ok)
        reach(f"after unlink {self.name}")
    os.fsync, Path.replace, Path.unlink = sync, rename, remove
    Path.rename, Path.rmdir = rename_token, remove_directory

def run(path, num_saves, point, bytes_per_s):
    root = Root(path)
    claim = root.claim_attempt()
    saver = Saver(root, claim, job="victim")
    state = {f"t{i}": torch.zeros(200_000) for i in range(5)}
    first = max((name.step for name in root.committed_steps()), default=0) + 1
    for step in range(first, first + num_saves):
        for tensor in state.values():
            tensor.fill_(step)
        if point and step == first + 1:
            die_when(lambda reached: point in reached)
        throttle = Throttle()
        throttle.set_rate(bytes_per_s)
        report = saver.begin(step, state, throttle).result()
        if report.committed:
            print(step, flush=True)
            retention.sweep(root, claim.number, lambda: None)
            retention.prune(root, retention.Keep(keep=2, keep_days=0), lambda: None)

for line in sys.stdin:  # torch is imported once; each victim is a fork
    pid = os.fork()
    if pid == 0:
        run(**json.loads(line))
        os._exit(0)
    print(f"pid {pid}", flush=True)
    _, status = os.waitpid(pid, 0)
    print(f"end {os.waitstatus_to_exitcode(status)}", flush=True)
"""


class Victims:
    """Starts one victim after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", VICTIM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._code = 0

    def start(self, root: Root, num_saves: int, point: str = "", bytes_per_s: int = 2_000_000_000) -> int:
        """The process id of a new victim that makes so many saves, and dies at `point` in its second one."""
        assert self._process.stdin is not None
        arguments = {
            "path": str(root.path),
            "num_saves": num_saves,
            "point": point,
            "bytes_per_s": bytes_per_s,
        }
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        return int(self._line().removeprefix("pid "))

    def run(self, root: Root, num_saves: int, point: str = "") -> int:
        """Run a victim to its end; returns its exit code."""
        self.start(root, num_saves, point)
        while not self.reports_until_end(1000)[1]:
            pass
        return self._code

    def reports_until_end(self, max_reports: int) -> tuple[list[int], bool]:
        """Steps reported as committed, up to so many, and whether the victim has ended."""
        reports: list[int] = []
        while len(reports) < max_reports:
            line = self._line()
            if line.startswith("end "):
                self._code = int(line.removeprefix("end "))
                return reports, True
            reports.append(int(line))
        return reports, False

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(LIMIT_S)

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@pytest.fixture(scope="module")
def victims() -> Iterator[Victims]:
    victims = Victims()
    yield victims
    victims.close()


def _restored_step(root: Root) -> int:
    """The step that comes back; every value of every tensor must be of that step."""
    state = {f"t{i}": torch.full((200_000,), -1.0) for i in range(5)}
    found = restore(root, state)
    assert found is not None
    for tensor in state.values():
        assert bool((tensor == float(found.step)).all())
    return found.step


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        ("before sync __0_0.distcp", 1),
        ("after sync __0_0.distcp", 1),
        ("before sync .metadata.tmp", 1),
        ("before rename BLOCKS", 1),
        ("before sync .MANIFEST.json", 1),
        ("before rename MANIFEST.json", 1),
        ("after rename MANIFEST.json", 2),
        ("before rename LATEST", 2),
        ("after rename LATEST", 2),
    ],
)
def test_named_points_of_a_save(root: Root, victims: Victims, point: str, expected: int) -> None:
    """Up to the manifest's rename the step before counts, from there on this one; the next start goes on from it."""
    assert victims.run(root, 3, point) == 9
    assert _restored_step(root) == expected
    assert victims.run(root, 1) == 0
    assert _restored_step(root) == expected + 1
    retention.sweep(root, 9, nothing)
    assert root.step_names() == root.committed_steps()


@pytest.mark.parametrize(
    "point",
    [
        "after rename MANIFEST.withdrawn",
        "after rename MANIFEST.deleting",
        "after unlink .metadata",
        "after unlink __0_0.distcp",
        "after unlink MANIFEST.deleting",
        "before rmdir step-",
    ],
)
def test_killed_in_the_middle_of_a_deletion(root: Root, victims: Victims, point: str) -> None:
    """One that has lost its manifest is no checkpoint, the newer ones are untouched, the rest goes next."""
    assert victims.run(root, 2) == 0
    assert victims.run(root, 3, point) == 9
    assert _restored_step(root) == 4
    assert len(root.step_names()) == len(root.committed_steps()) + 1
    retention.sweep(root, 9, nothing)
    assert root.step_names() == root.committed_steps()


@pytest.mark.system
def test_kills_at_random_instants(root: Root, victims: Victims) -> None:
    """Ten kills in a row: what comes back is one whole step, never before the last one reported."""
    draw = random.Random(2026)
    last_reported = 0
    for _ in range(10):
        pid = victims.start(root, 1000, bytes_per_s=60_000_000)
        reports, ended = victims.reports_until_end(draw.randint(0, 3))
        timer = threading.Timer(draw.uniform(0.0, 0.15), os.kill, [pid, signal.SIGKILL])
        timer.start()
        while not ended:
            more, ended = victims.reports_until_end(1)
            reports += more
        timer.join()
        last_reported = max([last_reported, *reports])
        if last_reported:
            assert _restored_step(root) >= last_reported
    assert last_reported > 5
    assert len(root.committed_steps()) <= 3
