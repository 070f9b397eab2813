"""Cases of jobs of several ranks, each a real process: who commits, who waits for whom, who hears of a notice."""

import os
import signal
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from rampmeter.layout import Root
from rampmeter.restore import restore
from support.crash_lives import Life
from support.forked import Nursery
from support.forked_job import Job, Parent, starting
from support.servers import listening, serving
from support.waiting import wait_for

pytestmark = pytest.mark.system

NUM_FLOATS = 25_000
NUM_FLIGHTS = 10
NUM_COMMITS = int(os.environ.get("C59_SAVES", "12"))
"""Of eight ranks, more than a second each where they share two cores: `make chaos` asks for the fifty of the case."""

OFTEN = {"interval_max_s": 0.05, "keep": 1000}


@pytest.fixture(scope="module")
def parent() -> Iterator[Parent]:
    with listening("support.crew_job") as process:
        yield process


@pytest.fixture
def start(parent: Parent, root: Root, tmp_path: Path) -> Iterator[Callable[..., Job]]:
    with starting(parent, tmp_path / "group") as begin:
        yield lambda num_ranks, **more: begin(
            num_ranks, **{"root": str(root.path), "options": OFTEN, "num_floats": NUM_FLOATS} | more
        )


def newest_step(root: Root, num_ranks: int) -> int:
    """The step that comes back, after a look at every value of every rank."""
    own = {f"rank{rank}.{index}": torch.zeros(NUM_FLOATS) for rank in range(num_ranks) for index in range(4)}
    found = restore(root, {"own": own, "shared": torch.zeros(1000), "note": ""})
    assert found is not None
    assert all(bool((own[name] == found.step + int(name[-1]) / 8).all()) for name in own)
    return found.step


def test_c57_back_to_back_saves_beside_collectives_of_training(start: Callable[..., Job], root: Root) -> None:
    """Four ranks meet in every step, and a save begins when the one before has ended: nobody waits for ever."""
    job = start(4, in_step=True, step_s=0.005, limit_s=60.0)
    for rank in range(4):
        wait_for(lambda rank=rank: len(job.find("saved", rank=rank)) >= 10, what="ten saves", limit_s=60.0)
    job.send(0, signal.SIGTERM)
    job.end()
    assert job.codes() == [75] * 4
    assert not job.find("saved", committed=False)
    assert all(said["slowest_s"] < 5.0 for said in job.find("left")), "no step waited for a save"
    assert newest_step(root, 4) == job.find("saved", rank=0)[-1]["step"]


def paces(job: Job, rank: int) -> list[float]:
    """Of each flight: its steps a second, as a share of those of the turns without a save right before and after it."""
    turns = job.find("turn", rank=rank)
    rates = [turn["num_steps"] / turn["seconds"] for turn in turns]
    flights = [number for number in range(1, len(turns) - 1) if turns[number]["in_flight"]]
    return [2.0 * rates[number] / (rates[number - 1] + rates[number + 1]) for number in flights]


def keeps_its_pace(job: Job, rank: int) -> bool:
    """At least 80 %, by the median of all flights so far, which are enough to say so."""
    found = paces(job, rank)
    return len(found) >= NUM_FLIGHTS and statistics.median(found) >= 0.8


@pytest.mark.skipif(
    "C57_PACE" not in os.environ, reason="it takes a machine for itself: `make chaos` has one"
)
def test_c57_training_keeps_its_pace_while_four_ranks_write(
    start: Callable[..., Job], root: Root, tmp_path: Path
) -> None:
    """Steps of 5 ms that end in a collective: at least 80 % of their rate while a save is in flight.

    Each flight is held against what is beside it in time, so that a busy machine slows both; where it is so busy that
    the median is below, more flights tell whether it is that. A rate makes a flight last, as that of a real state.
    """
    config = tmp_path / "coordinator.toml"
    config.write_text('[pools.default]\ncapacity = "60MB/s"\n')
    with serving(tmp_path, "--fresh", "--config", str(config), RAMPMETER_STORE="memory") as coordinator:
        options = {"interval_max_s": 0.05, "keep": 2, "coordinator": coordinator.url}
        job = start(4, in_step=True, step_s=0.005, limit_s=150.0, num_tensors=40, options=options)
        for rank in range(4):
            wait_for(lambda rank=rank: keeps_its_pace(job, rank), what="80 % of its pace", limit_s=100.0)
        job.finish()
        job.end()
    assert job.codes() == [0] * 4
    assert not job.find("saved", committed=False)


def test_c59_eight_ranks_finish_at_once_and_one_commits(start: Callable[..., Job], root: Root) -> None:
    """Each save is committed once, no rank misses a file that another one has moved, no directory is left over."""
    num_ranks, limit_s = 8, 60.0 + 3.0 * NUM_COMMITS
    job = start(num_ranks, step_s=0.02, limit_s=limit_s + 10.0)
    for rank in range(num_ranks):
        saved = {"rank": rank}
        wait_for(
            lambda saved=saved: len(job.find("saved", **saved)) >= NUM_COMMITS, what="saves", limit_s=limit_s
        )
    job.send(0, signal.SIGTERM)
    job.end()
    assert not job.find("saved", committed=False)
    warned = job.find("warned")
    assert not [said for said in warned if "Errno" in said["message"] or said["level"] == "ERROR"]
    ended = job.find("SaveEnded")
    assert {said["event"]["directory"] for said in ended} == {str(name) for name in root.committed_steps()}
    assert root.step_names() == root.committed_steps()
    assert len(ended) == len(root.committed_steps()) >= NUM_COMMITS
    assert newest_step(root, num_ranks) == job.find("saved", rank=0)[-1]["step"]


def test_c79_what_one_rank_asks_alone_is_no_collective(programs: Nursery, root: Root) -> None:
    """Rank 0 asks for everything in every step, rank 1 for nothing: answered within 1 s, both train and save on."""
    program = Life(kind="two_ranks", num_saves=2).start(programs, root)
    try:
        assert program.wait() == 0
    finally:
        if program.exit_code is None:  # the ranks wait for each other
            for line in (line for line in program.lines if line.startswith("pid ")):
                os.kill(int(line.removeprefix("pid ")), signal.SIGKILL)
    assert len(root.committed_steps()) == 2
    told = dict(line.split() for line in program.lines)
    assert set(told) == {"pid", "begun", "committed", "answered_within_ms"}
    assert int(told["answered_within_ms"]) < 1000


def test_c98_a_notice_on_one_of_four_ranks_is_one_save_of_all(start: Callable[..., Job], root: Root) -> None:
    """SIGTERM to rank 3 alone: one step, one commit, all leave in the same call and exit alike."""
    job = start(4, in_step=True, step_s=0.02, limit_s=60.0, options={"interval_min_s": 1000.0})
    for rank in range(4):
        job.wait("started", rank=rank)
    wait_for(lambda: root.newest_claim() is not None, what="the claim")
    job.send(3, signal.SIGTERM)
    job.end()
    assert job.codes() == [75] * 4
    assert len({said["step"] for said in job.find("left")}) == 1
    (name,) = root.committed_steps()
    assert {said["step"] for said in job.find("saved", committed=True)} == {name.step}
    assert newest_step(root, 4) == name.step
