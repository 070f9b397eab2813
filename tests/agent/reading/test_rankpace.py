"""Ranks that restore together at the pace of a desk on rank 0, each a real process in a gloo group."""

from pathlib import Path
from typing import Any

import pytest

from support.rank_programs import Ranks

HEAD = """
import json, threading, time
from datetime import timedelta
from functools import partial
import torch
import torch.distributed as dist
from rampmeter.core.clock import SystemClock
from rampmeter.reading.rankpace import rank_slot
from rampmeter.restore import restore

class Desk:
    def __init__(self):
        self.said, self.flow = [], None
    def steer_read(self, num_bytes, flow):
        self.said.append(num_bytes)
        self.flow = flow
        begin(flow)
    def read_through(self):
        self.said += ["through", self.flow.counters().done_bytes]
    def end_read(self):
        self.said.append("end")

def later(after_s, happens):
    timer = threading.Timer(after_s, happens)
    timer.daemon = True
    timer.start()

def begin(flow):
    flow.set_rate(None)

def flip(number):
    (file,) = root.path.glob(f"step-*/__{number}_0.distcp")
    content = bytearray(file.read_bytes())
    content[-100] ^= 1
    file.write_bytes(content)

def state_of(fill):
    own = {f"rank{rank}.{index}": torch.full((num_floats,), fill) for index in range(4)}
    return {"own": own, "shared": torch.full((1000,), fill)}

def paced(limit_s=30.0):
    group = dist.new_group(backend="gloo", timeout=timedelta(seconds=limit_s))
    desk = Desk() if rank == 0 else None
    state, begun_s = state_of(0.0), time.monotonic()
    slot = partial(rank_slot, desk, rank, SystemClock())
    try:
        found = restore(root, state, group=group, slot=slot)
        said = found.step
    except BaseException as error:
        said = f"{type(error).__name__}: {error}"
    whole = all(bool(torch.all(part == 1.0)) for part in state["own"].values())
    took_s = time.monotonic() - begun_s
    return {"said": said, "whole": whole, "took_s": took_s, "desk": desk.said if desk else None}

commit_together(root, 1, state_of(1.0), group)
"""
NUM_FLOATS = 250_000
"""Four tensors of 1 MB a rank."""


@pytest.fixture
def run(ranks: Ranks, tmp_path: Path) -> Any:
    """Runs a program on two ranks."""
    return lambda program: ranks.answers(2, tmp_path, HEAD + program, num_floats=NUM_FLOATS)


def test_the_lease_is_for_what_all_ranks_verify_and_is_given_back_when_all_have(run: Any) -> None:
    """Every byte is counted once, whoever has read it."""
    first, second = run("answer = paced()")
    assert (first["said"], second["said"], first["whole"], second["whole"]) == (1, 1, True, True)
    num_bytes, *after = first["desk"]
    assert 8_000_000 < num_bytes < 8_200_000
    assert after == ["through", num_bytes, "end"]


def test_ranks_share_the_rate(run: Any) -> None:
    """8 MB at 4 MB/s take two seconds on both, less the burst."""
    first, second = run("""
def begin(flow):
    flow.set_rate(4_000_000, SystemClock().now() + 30.0)
answer = paced()
""")
    for one in (first, second):
        assert one["said"] == 1
        assert 1.7 < one["took_s"] < 6.0


def test_a_pause_that_is_longer_than_the_limit_of_a_collective_ends_nothing(run: Any) -> None:
    """Nobody reads for four seconds, in a group that waits for two; then all the rest at once."""
    first, second = run("""
def begin(flow):
    flow.set_rate(2_000_000, SystemClock().now() + 30.0)
    later(1.0, lambda: flow.set_rate(0))
    later(5.0, lambda: flow.set_rate(None))
answer = paced(2.0)
""")
    for one in (first, second):
        assert one["said"] == 1
        assert 4.9 < one["took_s"] < 9.0


def test_a_rate_whose_time_is_over_pauses_all(run: Any) -> None:
    """Although rank 0 says nothing new: each rank has a deadline of its own."""
    first, second = run("""
def begin(flow):
    flow.set_rate(4_000_000, SystemClock().now() + 1.0)
    later(4.0, lambda: flow.set_rate(None))
answer = paced()
""")
    for one in (first, second):
        assert one["said"] == 1
        assert 3.9 < one["took_s"] < 9.0


def test_what_ends_it_on_rank_0_ends_it_on_all_that_wait(run: Any) -> None:
    """With the same error, and nothing is touched; the slot is given back."""
    first, second = run("""
def begin(flow):
    later(0.5, lambda: flow.abort("leaving"))
answer = paced()
""")
    assert first["said"] == second["said"] == "LeaseLost: leaving"
    assert max(first["took_s"], second["took_s"]) < 3.0
    assert (first["desk"][1:], first["whole"], second["whole"]) == (["end"], False, False)


def test_what_ends_it_reaches_ranks_that_read_when_rank_0_has_read_all(run: Any) -> None:
    """Rank 0 has nothing to verify but what it shares."""
    first, second = run("""
num_floats = 1 if rank == 0 else num_floats
root = Root(f"{root.path}/uneven")
root.path.mkdir(exist_ok=True)
commit_together(root, 1, state_of(1.0), group)
def begin(flow):
    flow.set_rate(500_000, SystemClock().now() + 30.0)
    later(1.5, lambda: flow.abort("leaving"))
answer = paced()
""")
    assert first["said"] == second["said"] == "LeaseLost: leaving"
    assert max(first["took_s"], second["took_s"]) < 5.0


@pytest.mark.parametrize("damaged", [0, 1])
def test_damage_that_one_rank_finds_is_the_error_of_all_although_others_wait(run: Any, damaged: int) -> None:
    """The rank that has hardly read yet is not waited for."""
    first, second = run(f"""
if rank == 0:
    flip({damaged})
dist.barrier()
def begin(flow):
    flow.set_rate(8_000_000, SystemClock().now() + 30.0)
    later(20.0, lambda: flow.set_rate(None))
answer = paced()
""")
    assert first["said"] == second["said"]
    assert first["said"].startswith("CorruptCheckpoint: no checkpoint in ")
    assert f"__{damaged}_0.distcp does not match its digest" in first["said"]
    assert first["desk"][1:] == ["end"]


def test_an_interrupted_rank_0_gives_the_slot_back_when_the_others_read_no_more(run: Any) -> None:
    """Ctrl-C there; the other has waited for its rate and gets an error."""
    first, second = run("""
import os, signal
class Desk(Desk):
    def end_read(self):
        beating = [thread for thread in threading.enumerate() if thread.name == "rampmeter-peers"]
        self.said.append(len(beating))
def begin(flow):
    flow.set_rate(100_000, SystemClock().now() + 30.0)
    later(1.0, lambda: os.kill(os.getpid(), signal.SIGINT))
answer = paced()
""")
    assert first["said"].startswith("KeyboardInterrupt")
    assert second["said"].startswith("RestoreError: step 1 (")
    assert second["said"].endswith("cannot be loaded: it was interrupted (rank 0)")
    assert max(first["took_s"], second["took_s"]) < 5.0
    assert first["desk"][1:] == [0], "the beats were over before"


def test_where_rank_0_asks_nobody_all_read_at_once(run: Any) -> None:
    """After its goodbye."""
    first, second = run("""
Desk = lambda: None
answer = paced()
""")
    assert (first["said"], second["said"]) == (1, 1)
    assert max(first["took_s"], second["took_s"]) < 3.0
