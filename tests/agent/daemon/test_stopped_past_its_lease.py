"""What writes is stopped, as by a debugger or a machine that sleeps, and goes on when its lease is over."""

import contextlib
import os
import signal

import pytest

from support.hired import CLOCK, MIB
from support.processes import is_running, is_stopped, num_sleeps
from support.trainers import Trainers
from support.waiting import wait_for

CHUNK_BYTES = MIB // 4
"""A quarter of a second at 1 MiB/s: what had been paid for and was not written yet."""


@pytest.mark.parametrize("in_a_thread", [True, False], ids=["thread", "process and its trainer"])
def test_who_was_stopped_past_its_lease_writes_a_chunk_and_no_more(
    trainers: Trainers, in_a_thread: bool
) -> None:
    """Nobody could tell it meanwhile: the deadline stands beside the rate. It waits for a new one, and is not lost."""
    job = trainers.begin(rate=MIB, until_bytes=MIB, lease_s=2.5, in_a_thread=in_a_thread)
    pids = {job["writer"], job["pid"]}
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: all(map(is_stopped, pids)), what="the stop")
        assert CLOCK.now() < job["until_s"]
        before_bytes = trainers.written_bytes()
        wait_for(lambda: CLOCK.now() > job["until_s"], what="the end of the lease")
        slept = num_sleeps(job["writer"])
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        wait_for(lambda: num_sleeps(job["writer"]) > slept + 50, what="the writer to look around")
        assert 0 < before_bytes <= 2.5 * MIB + CHUNK_BYTES
        assert trainers.written_bytes() - before_bytes <= CHUNK_BYTES
        assert all(map(is_running, pids))
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert trainers.hears()["what"] == "over"
    wait_for(lambda: not is_running(job["writer"]), what="the writer's end")
