"""Jobs of one, two and four real processes: they save together, stop together, and one that is ill harms no other.

Ranks are killed and stopped at each phase of a save; the others are never held up for longer than is said.
"""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.forked_job import Job, Parent, starting
from support.servers import listening

pytestmark = pytest.mark.system

MB = 1_000_000
FOLLOWED_S = 1.0
SLACK_S = 0.5
"""For two cores on which four ranks and other tests run: half of one more second, and no look of a whole one."""


@pytest.fixture(scope="module")
def parent() -> Iterator[Parent]:
    with listening("support.rank_job") as process:
        yield process


@pytest.fixture
def start(parent: Parent, tmp_path: Path) -> Iterator[Callable[..., Job]]:
    with starting(parent, tmp_path / "group") as begin:
        yield begin


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_ranks_save_and_stop_at_the_same_calls(start: Callable[..., Job], num_ranks: int) -> None:
    """Three saves and a stop: each in one call on all ranks, nobody waits long, all bytes are written, clean ends."""
    job = start(num_ranks, num_saves=3)
    job.end()
    assert job.codes() == [0] * num_ranks
    for number in (1, 2, 3):
        agreed = job.find("agreed", number=number, purpose="save")
        assert len(agreed) == num_ranks
        assert len({(said["call"], said["step"]) for said in agreed}) == 1
        ended = job.find("ended", number=number)
        assert [said["error"] for said in ended] == [None] * num_ranks
        assert [said["done_bytes"] for said in ended] == [MB] * num_ranks
    assert len({said["calls"] for said in job.find("left", clean=True)}) == 1
    assert not job.find("waited")


def test_nobody_writes_after_the_lease(start: Callable[..., Job]) -> None:
    """Two seconds at 4 MB/s, not renewed: the ranks together never have more than 8 MB, 3 : 1 by their bytes."""
    job = start(2, num_bytes=[60 * MB, 20 * MB], rate=4 * MB, lease_s=2.0, goes_on=True, num_calls=600)
    for rank in range(2):
        job.wait("writing", rank=rank)
    job.send(1, signal.SIGKILL)
    ended = job.wait("ended", rank=0)
    assert ended["failed"] == 1
    assert 0 < ended["done_bytes"] <= 6 * MB


def test_a_new_rate_reaches_all_ranks_within_a_second(start: Callable[..., Job]) -> None:
    """Nine changes while four ranks write; each rank looks every quarter of a second. Every one of them is in time."""
    job = start(4, num_bytes=[30 * MB] * 4, rate=20 * MB, num_changes=9, goes_on=True, num_calls=600)
    job.wait("left", rank=3)
    took_s = sorted(said["seconds"] for said in job.find("followed"))
    assert len(took_s) == 9
    assert took_s[4] < FOLLOWED_S
    assert took_s[-1] < FOLLOWED_S + SLACK_S


@pytest.mark.parametrize("phase", ["started", "agreed", "writing"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_is_gone_is_noticed(
    start: Callable[..., Job], phase: str, number: signal.Signals
) -> None:
    """Before, at and in a save: the others fail it naming the rank, or do not begin; their training goes on."""
    job = start(3, num_bytes=500 * MB, rate=3 * MB, before_s=1.0, goes_on=True, num_calls=1000, step_s=0.01)
    job.wait(phase, rank=1)
    job.send(1, number)
    if phase == "started":  # proposed or not: it may be gone before it was ever heard of
        job.wait("left", rank=0)
        assert not job.find("agreed")
    else:
        for rank in (0, 2):
            ended = job.wait("ended", rank=rank)
            assert ended["failed"] == 1
            assert ended["why"] == "rank 1 has been silent for 4 s"
            assert ended["done_bytes"] < 200 * MB
    for rank in (0, 2):
        assert job.wait("left", rank=rank)["calls"] == 1000
    assert all(said["seconds"] < 6.0 for said in job.find("waited"))


def test_without_rank_0_nobody_goes_on_writing(start: Callable[..., Job]) -> None:
    """Its store is gone with it: the others fail their save at once, train on and end cleanly."""
    job = start(3, num_bytes=500 * MB, rate=3 * MB, goes_on=True, num_calls=400)
    for rank in range(3):
        job.wait("writing", rank=rank)
    job.send(0, signal.SIGKILL)
    for rank in (1, 2):
        ended = job.wait("ended", rank=rank)
        assert ended["failed"] == 0
        assert ended["why"].startswith("the store of rank 0 is gone")
    job.end()
    assert job.codes() == [-9, 0, 0]
    assert {said["calls"] for said in job.find("left")} == {400}


@pytest.mark.parametrize("ill", [0, 1])
def test_a_rank_that_was_stopped_saves_again(start: Callable[..., Job], ill: int) -> None:
    """Stopped in the middle of a save, which fails on all, also on itself; the next save works on all."""
    job = start(2, num_bytes=12 * MB, rate=3 * MB, num_saves=2, before_s=0.5, in_step=True)
    for rank in range(2):
        job.wait("writing", rank=rank)
    job.send(ill, signal.SIGSTOP)
    assert job.wait("ended", rank=1 - ill, number=1)["failed"] == ill
    job.send(ill, signal.SIGCONT)
    assert job.wait("ended", rank=ill, number=1)["failed"] is not None
    job.end()
    last = max(said["number"] for said in job.find("ended"))
    assert [said["error"] for said in job.find("ended", number=last)] == [None, None]
    assert job.codes() == [0, 0]


def test_one_failed_write_fails_the_save_on_all_at_once(start: Callable[..., Job]) -> None:
    """All name the rank and its reason and stop long before their end; the next save works."""
    job = start(3, num_bytes=[30 * MB, 2 * MB, 30 * MB], rate=10 * MB, num_saves=2, fails_in_save=[0, 1, 0])
    job.end()
    first = {said["rank"]: said for said in job.find("ended", number=1)}
    assert first[1]["error"] == "OSError: [Errno 28] No space left on device"
    for rank in (0, 2):
        assert (first[rank]["failed"], first[rank]["why"]) == (1, first[1]["error"])
        assert first[rank]["done_bytes"] < 30 * MB
    assert [said["error"] for said in job.find("ended", number=2)] == [None] * 3


def test_ranks_may_leave_one_call_apart(start: Callable[..., Job]) -> None:
    """One makes a call less than the others: no rank hangs, and none ends badly."""
    for num_calls in range(20, 28):
        job = start(2, num_calls=[num_calls, num_calls - 1], before_s=0.15, goes_on=True)
        job.end()
        assert job.codes() == [0, 0]
        ended = job.find("ended", number=1)
        took = job.find("agreed", number=1)
        if len(took) == 1:
            assert [said["failed"] for said in ended] == [1]
            assert ended[0]["why"] == "rank 1 has left the training loop"
        else:
            assert [said["error"] for said in ended] == [None] * len(took)


def test_different_steps_never_save(start: Callable[..., Job]) -> None:
    """Rank 1 resumed from another step: refused before anybody takes a snapshot."""
    job = start(2, first_step=[100, 101], num_calls=60, before_s=0.2, goes_on=True, in_step=True)
    job.end()
    assert job.find("proposed")
    assert not job.find("agreed")
    assert job.codes() == [0, 0]


def test_a_notice_on_any_rank_is_one_of_all(start: Callable[..., Job]) -> None:
    """SIGTERM on rank 2 only: all ranks hear once that it was rank 2."""
    job = start(3, signals=True, before_s=60.0, num_calls=10**6)
    for rank in range(3):
        job.wait("started", rank=rank)
    job.send(2, signal.SIGTERM)
    for rank in range(3):
        assert job.wait("noticed", rank=rank)["by"] == 2
    assert len(job.find("noticed")) == 3


def test_a_dead_process_group_is_replaced_by_all(start: Callable[..., Job]) -> None:
    """A collective times out on one rank: the next agreed call brings all a new group, and the save in it works."""
    job = start(3, gloo=2.0, num_saves=2, sleeps_after_met=[0.0, 6.0, 0.0])
    job.end()
    assert any(said["error"] for said in job.find("ended", number=1))
    assert [said["new_group"] for said in job.find("agreed", number=2)] == [True] * 3
    assert [said["error"] for said in job.find("ended", number=2)] == [None] * 3
    assert job.codes() == [0, 0, 0]
