"""Jobs of two and four real processes that save together through one coordinator, and what is ill in one of them.

Nobody hangs for longer than the silence after which a rank counts as gone and the limit of a collective: 10 s and 30 s
in the product, 4 s and 8 s here.
"""

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from rampmeter.layout import Root
from rampmeter.restore import restore
from support.crew_job import COLLECTIVE_LIMIT_S, SILENT_S
from support.forked_job import Job, Parent, starting
from support.servers import Coordinator, listening, serving
from support.waiting import wait_for

pytestmark = pytest.mark.system

BUDGET = 8_000_000
NUM_FLOATS = 1_000_000
"""In each of a rank's four tensors: 16 MB a rank, two seconds of the budget."""

FEW_FLOATS = 250_000
TTL_S = 10.0


@pytest.fixture(scope="module")
def parent() -> Iterator[Parent]:
    with listening("support.crew_job") as process:
        yield process


@pytest.fixture
def start(parent: Parent, tmp_path: Path) -> Iterator[Callable[..., Job]]:
    with starting(parent, tmp_path / "group") as begin:
        yield lambda num_ranks, **more: begin(
            num_ranks, **{"root": str(tmp_path / "root"), "options": {"interval_max_s": 1.0}} | more
        )


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    config = tmp_path / "coordinator.toml"
    config.write_text(f'[pools.default]\ncapacity = "10MB/s"\nttl = "{TTL_S:.0f}s"\n')
    with serving(tmp_path, "--fresh", "--config", str(config), RAMPMETER_STORE="sqlite") as found:
        yield found


@pytest.fixture
def metered(start: Callable[..., Job], coordinator: Coordinator) -> Callable[..., Job]:
    """Starts jobs that ask this coordinator, with states that take seconds to write."""
    options = {"interval_max_s": 2.0, "coordinator": coordinator.url}
    return lambda num_ranks, **more: start(num_ranks, **{"num_floats": NUM_FLOATS, "options": options} | more)


@pytest.fixture
def one_stream(tmp_path: Path) -> Iterator[Coordinator]:
    """A coordinator that lets one writer at a time write, also inside a job."""
    config = tmp_path / "coordinator.toml"
    config.write_text('[pools.default]\ncapacity = "10MB/s"\nmax_streams = 1\n')
    with serving(tmp_path, "--fresh", "--config", str(config), RAMPMETER_STORE="sqlite") as found:
        yield found


def leases(coordinator: Coordinator) -> list[dict[str, Any]]:
    return httpx.get(f"{coordinator.url}/v1/pools/default/leases").json()["leases"]


def is_free(coordinator: Coordinator) -> bool:
    return not leases(coordinator)


def seen_of_the_job(coordinator: Coordinator) -> tuple[int, str, int | None]:
    """What the coordinator knows of its only job: how many saves have failed, the last one why; the committed step."""
    (job,) = httpx.get(f"{coordinator.url}/v1/pools/default/jobs").json()["jobs"]
    return job["num_failed"], job["last_failure"], job.get("committed_step")


def wait_until_seen(coordinator: Coordinator, num_failed: int, reason: str, step: int) -> None:
    """It sees just that, once a request of the job has told it."""
    wanted = (num_failed, reason, step)
    wait_for(lambda: seen_of_the_job(coordinator) == wanted, what=f"{wanted} to be seen", limit_s=20.0)


def newest_is_whole(root: Path, num_ranks: int, num_floats: int = 250_000) -> int:
    """The newest checkpoint, loaded by one process: its step, after a look at every value of every rank."""
    own = {f"rank{rank}.{index}": torch.zeros(num_floats) for rank in range(num_ranks) for index in range(4)}
    state = {"own": own, "shared": torch.zeros(1000), "note": ""}
    found = restore(root, state)
    assert found is not None
    for name, tensor in own.items():
        assert torch.equal(tensor, torch.full_like(tensor, found.step + int(name[-1]) / 8)), name
    assert torch.equal(state["shared"], torch.full((1000,), found.step + 0.5))
    assert state["note"] == "same on all"
    return found.step


def manifests(root: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_bytes()) for file in sorted(root.glob("step-*/MANIFEST.json"))]


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_ranks_save_one_checkpoint_together(
    start: Callable[..., Job], tmp_path: Path, num_ranks: int
) -> None:
    """Three saves: each is committed once, of one step on all ranks, all ranks' files are in it, nothing else stays."""
    job = start(num_ranks, limit_s=30.0)
    for rank in range(num_ranks):
        wait_for(lambda rank=rank: len(job.find("saved", rank=rank, committed=True)) >= 3, what="three saves")
    job.send(0, signal.SIGTERM)
    job.end()
    assert job.codes() == [75] * num_ranks
    assert len({said["step"] for said in job.find("left")}) == 1, "all left in the same call"
    assert not job.find("saved", committed=False)
    assert newest_is_whole(tmp_path / "root", num_ranks) == job.find("saved", rank=0)[-1]["step"]
    for manifest in manifests(tmp_path / "root"):
        assert manifest["world_size"] == num_ranks
        assert {
            file["name"].split("_")[2] for file in manifest["files"] if file["name"].startswith("__")
        } == {str(rank) for rank in range(num_ranks)}
    assert len(list((tmp_path / "root").glob("step-*"))) == len(manifests(tmp_path / "root")) <= 3


def test_a_notice_on_one_rank_saves_and_stops_all(metered: Callable[..., Job], tmp_path: Path) -> None:
    """SIGTERM on rank 1 alone: all save the same step, leave in the same call, and exit with 75."""
    job = metered(2, limit_s=60.0)
    job.wait("saved", rank=0, committed=True)
    job.send(1, signal.SIGTERM)
    job.end()
    assert job.codes() == [75, 75]
    last = [job.find("saved", rank=rank, committed=True)[-1]["step"] for rank in (0, 1)]
    assert last[0] == last[1] == newest_is_whole(tmp_path / "root", 2, NUM_FLOATS)
    assert len({said["step"] for said in job.find("left")}) == 1


def test_ranks_share_one_lease_and_keep_to_it(metered: Callable[..., Job], coordinator: Coordinator) -> None:
    """One lease for the job, at most the budget; both ranks are finished together, so nothing of it is wasted."""
    job = metered(2, limit_s=60.0)
    job.wait("SaveStarted")
    wait_for(lambda: any(lease["bytes_per_s"] for lease in leases(coordinator)), what="a rate")
    assert len(leases(coordinator)) == 1
    ended = job.wait("SaveEnded")["event"]
    assert int(ended["num_bytes"]) > 32_000_000
    assert float(ended["write_s"]) >= 0.95 * 32_000_000 / BUDGET
    rates = [int(said["event"]["bytes_per_s"]) for said in job.find("RateChanged")]
    assert 0 < max(rates) <= BUDGET
    job.send(0, signal.SIGTERM)
    job.end()
    assert job.codes() == [75, 75]


def test_a_rank_with_hardly_anything_to_write_holds_up_nobody(metered: Callable[..., Job]) -> None:
    """Rank 1 has its random state and no tensor of its own: it has a share of the rate all the same."""
    job = metered(2, num_tensors=[4, 0])
    for rank in (0, 1):
        job.wait("saved", rank=rank, committed=True)
    job.finish()
    job.end()
    assert job.codes() == [0, 0]


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_ranks_take_turns_where_one_writer_is_allowed(
    start: Callable[..., Job], one_stream: Coordinator, tmp_path: Path, mode: str
) -> None:
    """Rank 1 writes nothing before rank 0 is through, and the save takes as long as one writer needs for all."""
    options = {"interval_max_s": 2.0, "coordinator": one_stream.url, "mode": mode}
    job = start(2, num_floats=NUM_FLOATS, options=options)
    sizes: list[tuple[int, int]] = []
    while not job.find("SaveEnded"):
        files = [next((tmp_path / "root").glob(f"step-*/__{rank}_*"), None) for rank in (0, 1)]
        sizes.append(tuple(file.stat().st_size if file else 0 for file in files))  # type: ignore[arg-type]
        time.sleep(0.02)
    most = max(first for first, _ in sizes)
    assert most > 16_000_000
    assert [first for first, second in sizes if second and first < most] == []
    assert job.wait("saved", rank=0)["committed"]
    assert float(job.find("SaveEnded")[0]["event"]["write_s"]) >= 0.95 * 32_000_000 / BUDGET
    job.finish()
    job.end()
    assert job.codes() == [0, 0]


def test_one_failed_write_fails_the_save_on_all_and_the_next_one_works(
    metered: Callable[..., Job], coordinator: Coordinator, tmp_path: Path
) -> None:
    """Rank 1 of four may write no more than 3 MB: all name its reason, nothing stays of it, training goes on.

    The coordinator sees one failed save and no committed step, then that of the next save.
    """
    job = metered(4, limit_s=60.0, largest_file=[None, 3_000_000, None, None])
    for rank in range(4):
        assert job.wait("saved", rank=rank)["reason"] == "efbig"
    wait_for(lambda: seen_of_the_job(coordinator) == (1, "efbig", None), what="one failed save", limit_s=5.0)
    failed = job.wait("SaveEnded")["event"]
    assert float(failed["write_s"]) < 6.0, "rank 0 has not written all of its bytes, which takes 8 s"
    for rank in range(4):
        job.wait("saved", rank=rank, committed=True)
    wait_until_seen(coordinator, 1, "efbig", job.find("saved", rank=0, committed=True)[0]["step"])
    assert newest_is_whole(tmp_path / "root", 4, NUM_FLOATS) > int(failed["step"])
    wait_for(lambda: not (tmp_path / "root" / failed["directory"]).exists(), what="the leftovers' end")
    job.send(0, signal.SIGTERM)
    job.end()
    assert job.codes() == [75] * 4


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("ill", [1, 0])
def test_a_rank_that_is_gone_in_a_flush_holds_up_nobody(
    metered: Callable[..., Job], coordinator: Coordinator, tmp_path: Path, ill: int, number: signal.Signals
) -> None:
    """Of four: the others train on, none waits long in a call, the lease ends, the last committed one is whole.

    The coordinator sees the save that failed, and why; for it the committed step is that of the one before. Of a job
    whose rank 0 is gone it hears nothing more.
    """
    job = metered(4, limit_s=80.0, step_s=0.02, num_floats=FEW_FLOATS)
    job.wait("saved", rank=3, committed=True)
    num_started = len(job.find("SaveStarted"))
    wait_for(lambda: len(job.find("SaveStarted")) > num_started, what="the next save")
    wait_for(lambda: any(lease["bytes_per_s"] for lease in leases(coordinator)), what="a rate")
    stopped_s = time.monotonic()
    job.send(ill, number)
    others = [rank for rank in range(4) if rank != ill]
    for rank in others:
        wait_for(
            lambda rank=rank: job.find("saved", rank=rank, committed=False), what="the end", limit_s=30.0
        )
    if ill != 0:
        wait_for(lambda: is_free(coordinator), what="the end of the lease", limit_s=5.0)
        committed_step = job.find("saved", rank=0, committed=True)[-1]["step"]
        wait_until_seen(coordinator, 1, "rank_failed", committed_step)
        said = [event for event in job.find("SaveEnded") if event["event"]["reason"] != "None"]
        assert float(said[0]["event"]["now_s"]) < stopped_s + SILENT_S + COLLECTIVE_LIMIT_S - 1.0, (
            "the lease is given back when the rank is missed, and not when the collective has waited for it"
        )
    job.finish()
    for rank in others:
        assert job.wait("left", rank=rank)["slowest_s"] < 6.0
    job.kill(ill)
    job.end()
    assert all(job.codes()[rank] == 0 for rank in others)
    newest = newest_is_whole(tmp_path / "root", 4, FEW_FLOATS)
    num_failed, reason, committed_step = seen_of_the_job(coordinator)
    assert committed_step == newest
    assert ill == 0 or (num_failed > 0 and reason == "rank_failed")
    assert ill != 0 or (num_failed, reason) == (0, "none")


def test_a_rank_that_was_stopped_for_three_leases_saves_again(
    metered: Callable[..., Job], coordinator: Coordinator, tmp_path: Path
) -> None:
    """Of four that meet in every step: its save fails on all, the slot is free; the next works when it runs again."""
    job = metered(4, limit_s=120.0, step_s=0.02, num_floats=FEW_FLOATS, in_step=True)
    for rank in range(4):
        job.wait("saved", rank=rank, committed=True)
    num_started = len(job.find("SaveStarted"))
    wait_for(lambda: len(job.find("SaveStarted")) > num_started, what="the next save")
    wait_for(lambda: any(lease["bytes_per_s"] for lease in leases(coordinator)), what="a rate")
    stopped_s = time.monotonic()
    job.send(1, signal.SIGSTOP)
    wait_for(
        lambda: job.find("SaveEnded", rank=0)[-1]["event"]["reason"] == "rank_failed", what="the failure"
    )
    assert time.monotonic() < stopped_s + SILENT_S + COLLECTIVE_LIMIT_S
    wait_for(lambda: is_free(coordinator), what="the end of the lease", limit_s=5.0)
    wait_until_seen(coordinator, 1, "rank_failed", job.find("saved", rank=0, committed=True)[-1]["step"])
    before = newest_is_whole(tmp_path / "root", 4, FEW_FLOATS)
    wait_for(lambda: time.monotonic() > stopped_s + 3.0 * TTL_S, what="three leases", limit_s=4.0 * TTL_S)
    num_saved = [len(job.find("saved", rank=rank, committed=True)) for rank in range(4)]
    job.send(1, signal.SIGCONT)
    for rank in range(4):
        wait_for(
            lambda rank=rank: len(job.find("saved", rank=rank, committed=True)) > num_saved[rank],
            what="the next save",
        )
    assert newest_is_whole(tmp_path / "root", 4, FEW_FLOATS) > before
    wait_for(
        lambda: seen_of_the_job(coordinator)[2] == job.find("saved", rank=0, committed=True)[-1]["step"],
        what="the committed step",
    )
    job.send(1, signal.SIGTERM)
    job.end()
    assert job.codes() == [75] * 4


def test_ranks_at_different_steps_do_not_save(start: Callable[..., Job], tmp_path: Path) -> None:
    """Rank 1 says other step numbers: nothing is saved, training goes on."""
    job = start(2, limit_s=6.0, ahead=[0, 1])
    job.end()
    assert job.codes() == [0, 0]
    assert not job.find("SaveStarted")
    assert not Root(tmp_path / "root").step_names()


def test_a_state_that_cannot_be_copied_on_one_rank_fails_on_all(
    start: Callable[..., Job], tmp_path: Path
) -> None:
    """The word for it is the same on both; nobody waits in a collective for the rank that has none; nothing stays."""
    job = start(2, cannot_be_saved=[False, True], limit_s=120.0)
    for rank in (0, 1):
        assert job.wait("saved", rank=rank)["reason"] == "bad_state"
    wait_for(
        lambda: all(len(job.find("saved", rank=rank)) >= 3 for rank in (0, 1)),
        what="two more saves that fail so",
        limit_s=COLLECTIVE_LIMIT_S,
    )
    job.finish()
    job.end()
    assert job.codes() == [0, 0]
    assert not Root(tmp_path / "root").step_names()


def test_a_key_that_rank_0_lacks_fails_the_save_on_all(start: Callable[..., Job], tmp_path: Path) -> None:
    """No restore could give it back: it is told at the first save, with the rank and the key, and not months later."""
    job = start(2, extra_key=[None, "only_here"])
    for rank in (0, 1):
        assert job.wait("saved", rank=rank)["reason"] == "bad_state"
    job.finish()
    job.end()
    assert job.codes() == [0, 0]
    assert not Root(tmp_path / "root").committed_steps()


def test_a_root_that_is_not_shared_is_refused_by_all(start: Callable[..., Job], tmp_path: Path) -> None:
    """Each rank names the directory and the rank that does not find in it what rank 0 has written."""
    job = start(2, root=[str(tmp_path / "a"), str(tmp_path / "b")])
    job.end()
    assert job.codes() == [2, 2]
    for rank in (0, 1):
        error = job.find("refused", rank=rank)[0]["error"]
        assert error.startswith(f"ConfigError: root {tmp_path / 'b'} is not shared: rank 1 on ")
