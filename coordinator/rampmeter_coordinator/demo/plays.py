"""What the demo's processes run, by name: the demo itself never imports torch, its children find it imported.

Each play begins by cutting the process off from the terminal and from settings that are meant for others.
"""

import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path

from rampmeter_coordinator.demo.scenario import JobSpec, Role, Scenario

PRELOADED = ("rampmeter_coordinator.demo.trainer", "rampmeter_coordinator.demo.checking")
"""Imported once, by the server from which the processes are forked."""


def train(control: Connection, log: Path, role: Role, scenario: Scenario) -> None:
    """One life of one training job."""
    _cut_off(log)
    from rampmeter_coordinator.demo.trainer import run  # noqa: PLC0415 - torch stays out of the demo itself

    run(control, role, scenario)


def check(control: Connection, log: Path, job: JobSpec, root: Path, scenario: Scenario) -> None:
    """Restore the newest checkpoint under `root` and send (step, digest of the state)."""
    _cut_off(log)
    from rampmeter_coordinator.demo.checking import restored_digest  # noqa: PLC0415

    control.send(restored_digest(job, root, scenario))


def _cut_off(log: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the demo ends us in order
    for name in [name for name in os.environ if name.startswith("RAMPMETER")]:
        del os.environ[name]
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
