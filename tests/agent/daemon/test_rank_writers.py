"""Jobs of several ranks, each with a writer process of its own: they save together, and fail together."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rampmeter.core.clock import SystemClock
from rampmeter.layout import Root
from rampmeter.manifest import read_manifest
from rampmeter.ranks.group import COLLECTIVE_LIMIT_S
from rampmeter.restore import restore
from support.crew_job import SILENT_S
from support.forked_job import Job, Parent, starting
from support.processes import is_running
from support.servers import listening, serving
from support.waiting import wait_for

pytestmark = pytest.mark.system

CLOCK = SystemClock()
NUM_FLOATS = 1_000_000
"""In each of a rank's four tensors: 16 MB a rank, four seconds of the budget."""

BUDGET = 8_000_000
FEW_FLOATS = 25_000
SOON_S = 6.0
"""What is told at once, on a machine that is busy with other tests."""

WATCHED_S = 10.0 + SOON_S
"""Within the limit of the watch over a writer."""

TTL_S = 10.0
START_S = 60.0
"""For two more interpreters that import torch."""


@pytest.fixture(scope="module")
def parent() -> Iterator[Parent]:
    with listening("support.crew_job") as process:
        yield process


@pytest.fixture
def start(parent: Parent, root: Root, tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Starts jobs of two ranks with states of 400 KB each; `options` are added to what is asked for anyway."""
    with starting(parent, tmp_path / "group") as begin:

        def job(options: dict[str, Any] | None = None, num_ranks: int = 2, **more: Any) -> Job:
            asked = {"interval_max_s": 0.05, "mode": "process"} | (options or {})
            defaults = {"root": str(root.path), "num_floats": FEW_FLOATS, "limit_s": 200.0}
            return begin(num_ranks, options=asked, **defaults | more)

        yield job


@pytest.fixture
def metered(start: Callable[..., Job], tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Starts jobs whose saves take four seconds."""
    config = tmp_path / "coordinator.toml"
    config.write_text(f'[pools.default]\ncapacity = "10MB/s"\nttl = "{TTL_S:.0f}s"\n')
    with serving(tmp_path, "--fresh", "--config", str(config), RAMPMETER_STORE="sqlite") as found:
        options = {"interval_max_s": 1.0, "coordinator": found.url}
        yield lambda **more: start(options, num_floats=NUM_FLOATS, **more)


def writer(job: Job, rank: int) -> int:
    """The process that writes for this rank now."""
    job.wait("hired", rank=rank)
    pid: int = job.find("hired", rank=rank)[-1]["writer"]
    return pid


def saved(job: Job, num: int, *, limit_s: float = START_S, **more: Any) -> list[list[dict[str, Any]]]:
    """By rank, the ends of so many saves."""
    for rank in (0, 1):
        what = f"{num} saves {more} of rank {rank}"
        wait_for(
            lambda rank=rank: len(job.find("saved", rank=rank, **more)) >= num, what=what, limit_s=limit_s
        )
    return [job.find("saved", rank=rank, **more) for rank in (0, 1)]


def files_of(root: Root, rank: int) -> list[Path]:
    """What this rank has written of a save that is not committed yet."""
    found = [path for path in root.path.glob(f"step-*/__{rank}_*") if path.exists()]
    return [path for path in found if not (path.parent / "MANIFEST.json").exists()]


def in_mid_flush(root: Root) -> None:
    """Both ranks have written some of the next save, and far from all."""
    for rank in (0, 1):
        wait_for(
            lambda rank=rank: any(path.stat().st_size > 1_000_000 for path in files_of(root, rank)),
            what=f"bytes of rank {rank}",
            limit_s=START_S,
        )


def loaded(root: Root, num_floats: int, step: int | None = None) -> int:
    """The step that comes back, after a look at every value of every rank."""
    own = {f"rank{rank}.{index}": torch.zeros(num_floats) for rank in (0, 1) for index in range(4)}
    state = {"own": own, "shared": torch.zeros(1000), "note": ""}
    found = restore(root, state, step=step)
    assert found is not None
    for name, tensor in own.items():
        assert torch.equal(tensor, torch.full_like(tensor, found.step + int(name[-1]) / 8)), name
    assert torch.equal(state["shared"], torch.full((1000,), found.step + 0.5))
    return found.step


def warnings(job: Job) -> list[str]:
    """Those that say which way saves go."""
    return [said["message"] for said in job.find("warned") if "in a thread of training" in said["message"]]


def ended(job: Job, num_ranks: int = 2) -> None:
    """Training is through; all ranks leave, and nothing of their writers is left."""
    job.finish()
    job.end()
    assert job.codes() == [0] * num_ranks
    assert [said["left_behind"] for said in job.find("closed")] == [[]] * num_ranks
    for said in job.find("hired"):
        wait_for(lambda pid=said["writer"]: not is_running(pid), what="the writers' end")


def test_no_snapshot_is_torn_and_nothing_is_left(start: Callable[..., Job], root: Root) -> None:
    """Training changes every value right after each step: all that is committed is of one step; then all is gone."""
    job = start({"keep": 1000}, step_s=0.0, in_step=True)
    ends = saved(job, 12)
    ended(job)
    assert not job.find("saved", committed=False)
    assert [said["step"] for said in ends[0]] == [said["step"] for said in ends[1]]
    assert len(job.find("hired")) == 2, "each rank has had one writer"
    for name in root.committed_steps():
        assert loaded(root, FEW_FLOATS, name.step) == name.step
    assert len(root.committed_steps()) >= 12
    assert not warnings(job)


def test_a_lost_writer_costs_one_save_and_the_second_one_the_way(
    metered: Callable[..., Job], root: Root
) -> None:
    """All ranks hear of it at once and by name; a new group saves again; after a second loss all write in threads."""
    job = metered()
    saved(job, 1, committed=True)
    for number in (1, 2):
        in_mid_flush(root)
        lost = writer(job, 1)
        os.kill(lost, signal.SIGKILL)
        ends = saved(job, number, limit_s=SOON_S, committed=False)
        assert [end[-1]["reason"] for end in ends] == ["writer_lost"] * 2
        num_before = len(job.find("saved", rank=0, committed=True))
        saved(job, num_before + 1, committed=True)
    assert len(job.find("hired", rank=1)) == 2
    assert len(job.find("hired", rank=0)) == 1, "who was not lost is not replaced"
    (message,) = warnings(job)
    assert "rank 1" in message
    assert "SIGKILL" in message
    ended(job)
    assert loaded(root, NUM_FLOATS) == job.find("saved", rank=0, committed=True)[-1]["step"]


def test_a_writer_that_is_stopped_is_ended_by_its_rank(metered: Callable[..., Job], root: Root) -> None:
    """Also that of rank 0, which all others wait for; the next save has a new one, and tells of the flow of the job."""
    job = metered()
    in_mid_flush(root)
    stopped = writer(job, 0)
    os.kill(stopped, signal.SIGSTOP)
    ends = saved(job, 1, limit_s=WATCHED_S, committed=False)
    assert [end[-1]["reason"] for end in ends] == ["writer_lost"] * 2
    wait_for(lambda: not is_running(stopped), what="its end", limit_s=SOON_S)
    saved(job, 1, committed=True)
    ended(job)
    lease = read_manifest(root.directory(root.committed_steps()[0])).lease
    assert lease is not None
    assert lease.bytes_per_s > 0.75 * BUDGET, "of both ranks, not of rank 0 alone"
    assert loaded(root, NUM_FLOATS) == job.find("saved", rank=0, committed=True)[-1]["step"]


def test_nobody_waits_in_a_collective_for_a_lost_writer(metered: Callable[..., Job], root: Root) -> None:
    """Of three writers one is killed: who talks to another one than that is not held up by its limit, either."""
    job = metered(num_ranks=3)
    in_mid_flush(root)
    before_s = CLOCK.now()
    os.kill(writer(job, 2), signal.SIGKILL)
    for rank in range(3):
        wait_for(lambda rank=rank: job.find("saved", rank=rank), what="the end", limit_s=SOON_S)
    assert {said["reason"] for said in job.find("saved")} == {"writer_lost"}
    wait_for(lambda: len(job.find("SaveStarted")) > 1, what="the next save", limit_s=COLLECTIVE_LIMIT_S)
    assert CLOCK.now() - before_s < 0.7 * COLLECTIVE_LIMIT_S
    ended(job, num_ranks=3)


def test_a_writer_that_dies_between_two_saves_costs_none(start: Callable[..., Job]) -> None:
    """Its rank sees it, and all make a new group with the next one."""
    job = start({"interval_max_s": 4.0})
    saved(job, 1)
    lost = writer(job, 1)
    os.kill(lost, signal.SIGKILL)
    saved(job, 3)
    ended(job)
    assert not job.find("saved", committed=False)
    assert [len(job.find("hired", rank=rank)) for rank in (0, 1)] == [1, 2]


def test_many_tensors_on_one_rank_are_enough(start: Callable[..., Job]) -> None:
    """Without being asked for: then all write beside training, also those with few; with few on all none does."""
    job = start({"mode": "auto"}, num_tensors=[4, 201], num_floats=100)
    saved(job, 2)
    ended(job)
    assert not job.find("saved", committed=False)
    assert [len(job.find("hired", rank=rank)) for rank in (0, 1)] == [1, 1]
    few = start({"mode": "auto"}, num_tensors=4, num_floats=100)
    saved(few, 1)
    ended(few)
    assert not few.find("hired")
    assert not warnings(job) + warnings(few)


def test_a_trainer_that_is_killed_in_mid_flush_hangs_nobody(metered: Callable[..., Job], root: Root) -> None:
    """The other rank goes on training, the writer that has lost its trainer goes, what was committed is there."""
    job = metered()
    saved(job, 1, committed=True)
    in_mid_flush(root)
    orphan = writer(job, 1)
    job.kill(1)
    failed = job.wait("saved", rank=0, committed=False)
    assert failed["reason"] == "rank_failed"
    wait_for(lambda: not is_running(orphan), what="the orphan's end", limit_s=SILENT_S + SOON_S)
    job.finish()
    job.end()
    assert job.codes() == [0, -signal.SIGKILL]
    assert loaded(root, NUM_FLOATS) == job.find("saved", rank=0, committed=True)[-1]["step"]


def test_orphans_of_all_ranks_commit_all_or_nothing(metered: Callable[..., Job], root: Root) -> None:
    """All trainers are killed while the writers hold a lease: these finish what it allows, and go."""
    job = metered()
    saved(job, 1, committed=True)
    before = job.find("saved", rank=0, committed=True)[-1]["step"]
    in_mid_flush(root)
    writers = [writer(job, rank) for rank in (0, 1)]
    job.kill()
    job.end()
    for pid in writers:
        wait_for(lambda pid=pid: not is_running(pid), what="the orphans' end", limit_s=TTL_S + SOON_S)
    assert loaded(root, NUM_FLOATS) > before, "the lease was long enough"


def test_a_rank_that_cannot_decides_for_all(start: Callable[..., Job], root: Root) -> None:
    """All write in threads; one warning names the rank and its reason, however many saves there are."""
    job = start(has_own_writer=[False, True])
    saved(job, 3, committed=True)
    (message,) = warnings(job)
    assert "rank 1: ScriptsOwn is defined in the training script" in message
    ended(job)
    assert loaded(root, FEW_FLOATS) == job.find("saved", rank=0)[-1]["step"]


def test_values_of_one_rank_that_are_not_finite_fail_the_save_on_all(
    start: Callable[..., Job], root: Root
) -> None:
    """The writers agree on that in their group, which serves the next save, too."""
    job = start(has_nan_until_told=[False, True])
    ends = saved(job, 1, committed=False)
    assert [end[0]["reason"] for end in ends] == ["not_finite"] * 2
    saved(job, 2, committed=True)
    ended(job)
    assert {said["reason"] for said in job.find("saved", committed=False)} == {"not_finite"}
    assert len(job.find("hired")) == 2
    assert loaded(root, FEW_FLOATS) == job.find("saved", rank=0, committed=True)[-1]["step"]


def test_a_new_rate_reaches_both_writers_within_a_second(start: Callable[..., Job]) -> None:
    """A change counts as followed when each writer process obeys it, not when its trainer has heard of it."""
    job = start(num_floats=4 * NUM_FLOATS, num_changes=9)
    wait_for(lambda: len(job.find("followed")) == 9, what="nine changes", limit_s=START_S)
    took_s = sorted(said["seconds"] for said in job.find("followed"))
    assert took_s[4] < 1.0
    saved(job, 1, committed=True)
    ended(job)
