"""Trainers that have their saves written by a writer process, each a real process that may be killed or leave.

`python -m support.hired_trainer` imports torch once, then forks a trainer for each job that it is told on stdin (JSON,
one a line). A trainer tells on stdout what happens to it, one JSON object a line.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch

from rampmeter.daemon.guardian import Guardian
from rampmeter.layout import Root
from rampmeter.throttle import Throttle
from support.hired import CLOCK, GATE, Desk, HeldBeforeCommit
from support.waiting import wait_for

MIB = 1024 * 1024


def tell(what, **more):
    os.write(1, (json.dumps({"what": what, **more}) + "\n").encode())


def train(job):
    """One save, at the rates that the job says; then the end that it says."""
    if job.get("gate"):
        os.environ[GATE] = job["gate"]
        Path(job["gate"]).touch()
    guardian = Guardian(CLOCK)
    guardian.warm_up()
    desk = Desk(Root(job["root"]), guardian)
    wait_for(lambda: guardian.pid, what="the writer")
    if job.get("forks") and os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    if "rate" in job:
        throttle = Throttle()
        kind = HeldBeforeCommit if job.get("gate") else None
        desk.begin(1, {"t": torch.ones(MIB)}, throttle, writer_class=kind)
        wait_for(lambda: desk.first_bytes, what="the first byte in hand")
        until_s = None if job.get("lease_s") is None else CLOCK.now() + job["lease_s"]
        throttle.set_rate(job["rate"], until_s)
        wait_for(lambda: throttle.counters().done_bytes >= job.get("until_bytes", 0), what="the bytes")
    tell("there", pid=os.getpid(), writer=guardian.pid)
    leave(job.get("leaves"))


def leave(how):
    """End as a training script may."""
    if how is None:
        time.sleep(60)
    elif how == "exit":
        sys.exit(3)
    else:
        raise RuntimeError("training failed")


if __name__ == "__main__":
    tell("ready")
    for line in sys.stdin:
        if os.fork() == 0:
            sys.stdin = None
            train(json.loads(line))
            break
        os.wait()
        tell("over")
