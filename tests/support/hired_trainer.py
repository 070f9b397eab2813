"""Trainers that have their saves written by a writer process, or write them in a thread: processes to kill or to stop.

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
from rampmeter.daemon.mode import Mode
from rampmeter.layout import Root
from rampmeter.saving import Saver
from rampmeter.throttle import Throttle
from support.hanging_writer import HangsInClose, hangs_under
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
    begin_and_tell = write_in_a_thread if job.get("in_a_thread") else have_it_written
    begin_and_tell(job)
    leave(job.get("leaves"))


def make_state():
    """4 MiB. Never before a fork: the threads that torch fills it with would be missed after it."""
    return {"t": torch.ones(MIB)}


def have_it_written(job):
    guardian = Guardian(CLOCK)
    guardian.warm_up()
    desk = Desk(Root(job["root"]), guardian)
    wait_for(lambda: guardian.pid, what="the writer")
    if job.get("forks") and os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    until_s = None
    if "rate" in job:
        throttle = Throttle()
        kind = HeldBeforeCommit if job.get("gate") else HangsInClose if job.get("hangs") else None
        desk.begin(1, make_state(), throttle, writer_class=kind)
        until_s = give_rate(job, throttle, desk.first_bytes)
    if job.get("hangs"):
        wait_for(lambda: hangs_under(Path(job["root"])), what="the hang")
    tell("there", pid=os.getpid(), writer=guardian.pid, until_s=until_s)


def write_in_a_thread(job):
    root, throttle, first_bytes = Root(job["root"]), Throttle(), []
    saver = Saver(root, root.claim_attempt(), job="test", mode=Mode.THREAD)
    saver.begin(1, make_state(), throttle, first_bytes.append)
    until_s = give_rate(job, throttle, first_bytes)
    tell("there", pid=os.getpid(), writer=os.getpid(), until_s=until_s)


def give_rate(job, throttle, first_bytes):
    """Once the first byte is in hand, and until so many bytes are out; returns until when it may be used."""
    wait_for(lambda: first_bytes, what="the first byte in hand")
    until_s = None if job.get("lease_s") is None else CLOCK.now() + job["lease_s"]
    throttle.set_rate(job["rate"], until_s)
    wait_for(lambda: throttle.counters().done_bytes >= job.get("until_bytes", 0), what="the bytes")
    return until_s


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
