"""Restores beside a real coordinator: roots with a checkpoint of a given size, and a process that only restores."""

import logging
import random
import sys
from contextlib import contextmanager
from pathlib import Path

import torch

import rampmeter
from rampmeter.core import phase
from rampmeter.events import RestoreRateChanged
from rampmeter.layout import Root
from rampmeter.saving import Saver
from rampmeter.throttle import Throttle
from support.servers import running

MB = 1_000_000


def state_of(num_bytes, fill=1.0):
    """Eight tensors."""
    return {f"part{i}": torch.full((num_bytes // 32,), fill) for i in range(8)}


def save(root_path, num_bytes, *, step=1, fill=1.0):
    """A committed checkpoint of `step`."""
    root = Root(root_path)
    root.ensure_job_uid()
    saver = Saver(root, root.claim_attempt(), job="test")
    throttle = Throttle()
    throttle.set_rate(None)
    report = saver.begin(step, state_of(num_bytes, fill), throttle).result(60)
    saver.close(10.0)
    assert report.committed
    return root


def allowed(events):
    """Every rate that the restore was allowed, in order."""
    return [event.bytes_per_s for event in list(events) if isinstance(event, RestoreRateChanged)]


def most_allowed(*jobs):
    """The largest sum of what several restores were allowed at any instant."""
    changes = sorted(
        (event.now_s, index, event.bytes_per_s)
        for index, events in enumerate(jobs)
        for event in events
        if isinstance(event, RestoreRateChanged)
    )
    now, most = dict.fromkeys(range(len(jobs)), 0), 0
    for _, index, rate in changes:
        now[index] = rate
        most = max(most, sum(now.values()))
    return most


def seed_for(low_s, high_s):
    """A seed with which an attempt waits out so much silence before it reads without a lease."""
    for seed in range(10_000):
        rng = random.Random(seed)
        rng.random()  # places the first save
        if low_s <= phase.read_unasked_in(rng) <= high_s:
            return seed
    raise AssertionError("no such seed")


@contextmanager
def restoring(root_path, num_bytes, log, **environ):
    """A process that restores and ends; `log` has its log."""
    command = [sys.executable, Path(__file__), root_path, str(num_bytes)]
    with running(command, log, **environ) as process:
        yield process


def _main():
    logging.basicConfig(level=logging.INFO)
    with rampmeter.Checkpointer(sys.argv[1]) as ckpt:
        print("restored", ckpt.restore(state_of(int(sys.argv[2]), 0.0)), flush=True)
    sys.exit(ckpt.exit_code)


if __name__ == "__main__":
    _main()


def pool_settings(directory, read_capacity):
    """Of a coordinator with a write budget of 80 MB/s, a read budget beside it, and short leases."""
    path = directory / "rampmeter.toml"
    path.write_text(
        f'[pools.default]\ncapacity = "100MB/s"\nread_capacity = "{read_capacity}"\nttl = "10s"\n'
    )
    return {"RAMPMETER_CONFIG": str(path), "RAMPMETER_STORE": "memory"}
