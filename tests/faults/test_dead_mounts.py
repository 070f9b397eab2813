"""The end of a process whose mount hangs before a save has made its directory: soon, with its own exit code.

A first save is committed before, so that also a writer process is there.
"""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rampmeter.layout import Root
from support.case_state import loaded
from support.forked import Nursery, nursery
from support.fuse import Remount, needs_fuse
from support.servers import Coordinator, serving

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

NUM_VALUES = 100_000
GONE_WITHIN_S = 10.0

PROGRAM = """
import os, signal, sys
import torch
import rampmeter
from rampmeter.events import SaveEnded, SaveStarted
saved, begun = [], []
def note(event):
    if isinstance(event, SaveEnded) and event.reason is None:
        saved.append(event.step)
    if isinstance(event, SaveStarted) and saved:
        os.kill({server}, signal.SIGSTOP)  # the storage has been looked at, and nothing is made yet
        begun.append(event)
def train(ckpt, until):
    step = 10
    while not until():
        step += 1
        ckpt.step(step, {{"table": torch.full(({num_values},), float(step))}})
options = dict(coordinator={url!r}, interval_max_s=0.1, notice_s=5.0, mode={mode!r}, on_event=note)
with rampmeter.Checkpointer({root!r}, **options) as ckpt:
    train(ckpt, lambda: begun)
    print("saved", saved[-1], flush=True)
    print("hung", flush=True)
    {end}
"""
TOLD = "os.kill(os.getpid(), signal.SIGTERM); train(ckpt, lambda: ckpt.should_stop); sys.exit(ckpt.exit_code)"


@pytest.fixture(scope="module")
def programs() -> Iterator[Nursery]:
    with nursery() as found:
        yield found


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    with serving(tmp_path_factory.mktemp("coordinator"), "--fresh") as found:
        yield found


@needs_fuse
@pytest.mark.parametrize(
    ("end", "mode", "metered", "exit_code"),
    [
        ("pass", "thread", False, 0),
        ("raise ValueError", "thread", True, 1),
        ("sys.exit(7)", "process", True, 7),
        (TOLD, "thread", True, 75),
    ],
    ids=["return", "exception", "sys.exit, a process writes", "SIGTERM"],
)
def test_a_mount_that_hangs_before_the_first_byte_holds_no_process(
    tmp_path: Path,
    programs: Nursery,
    coordinator: Coordinator,
    remount: Remount,
    end: str,
    mode: str,
    metered: bool,
    exit_code: int,
) -> None:
    """Its server is stopped when a save begins; when it goes on, what was committed before is whole and the newest."""
    server = remount()
    root = Root(tmp_path / "mount" / "job")
    url = coordinator.url if metered else None
    text = PROGRAM.format(
        server=server.pid, root=str(root.path), num_values=NUM_VALUES, url=url, mode=mode, end=end
    )
    program = programs.start(text)
    program.wait_for("hung")
    since_s = time.monotonic()
    try:
        assert program.wait() == exit_code
    finally:
        if program.exit_code is None:
            program.kill()
        took_s = time.monotonic() - since_s
        server.send_signal(signal.SIGCONT)
    assert took_s < GONE_WITHIN_S + 2.0, "two for a machine that does something else, too"
    found = loaded(root, NUM_VALUES)
    assert found is not None
    assert f"saved {found.step}" in program.lines
