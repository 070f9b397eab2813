"""Jobs of two real processes that restore together at the read budget of a real coordinator, and what is ill in it."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from rampmeter.core.clock import SystemClock
from support.crew_job import COLLECTIVE_LIMIT_S
from support.forked_job import Job, Parent, starting
from support.restoring import MB, seed_for
from support.servers import Coordinator, listening, serving
from support.waiting import wait_for

pytestmark = pytest.mark.system

BUDGET = 20 * MB
NUM_FLOATS = 1_875_000
"""In each of a rank's four tensors: 30 MB a rank."""

BURST_BYTES = BUDGET // 4
TTL_S = 10.0
LEAVE_S = 14.0
"""Until a rank that has lost the others has found out whom, has left its team and has told it; on a busy machine."""

IN_HAND_BYTES = 4 * MB
"""Paid for and not read yet: one chunk in each of two threads of two ranks."""


@pytest.fixture(scope="module")
def parent() -> Iterator[Parent]:
    with listening("support.crew_job") as process:
        yield process


@pytest.fixture
def start(parent: Parent, tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Starts jobs of two ranks with 60 MB."""
    with starting(parent, tmp_path / "group") as begin:
        yield lambda num_ranks=2, **more: begin(
            num_ranks, **{"root": str(tmp_path / "root"), "num_floats": NUM_FLOATS} | more
        )


@pytest.fixture
def saved(start: Callable[..., Job]) -> list[int]:
    """A checkpoint of two ranks: the sums of the values of each, by rank."""
    job = start(options={"interval_max_s": 1.0})
    steps = [job.wait("saved", rank=rank, committed=True)["step"] for rank in (0, 1)]
    job.kill()
    job.end()
    return steps


@pytest.fixture
def pool(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Settings of a coordinator with a read budget beside a larger write budget, and short leases."""
    path = tmp_path / "rampmeter.toml"

    def settings(read_capacity: str = "25MB/s") -> dict[str, str]:
        path.write_text(
            f'[pools.default]\ncapacity = "100MB/s"\nread_capacity = "{read_capacity}"\nttl = "10s"\n'
        )
        return {"RAMPMETER_CONFIG": str(path), "RAMPMETER_STORE": "memory"}

    return settings


@pytest.fixture
def restore(start: Callable[..., Job], saved: list[int]) -> Callable[..., Job]:
    """Starts a job that restores what was saved, from the coordinator's pool."""

    def begin(coordinator: Coordinator, **more: Any) -> Job:
        options = {"coordinator": coordinator.url, "interval_max_s": 1000.0}
        return start(restores=True, options=options, limit_s=20.0, **more)

    return begin


def leases(coordinator: Coordinator) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = httpx.get(f"{coordinator.url}/v1/pools/default/leases").json()["leases"]
    return found


def rates(job: Job) -> list[tuple[float, str]]:
    return [
        (float(said["event"]["now_s"]), said["event"]["bytes_per_s"])
        for said in job.find("RestoreRateChanged")
    ]


def wait_until_reading(job: Job) -> None:
    wait_for(lambda: any(rate != "0" for _, rate in rates(job)), what="a rate to read at")


def signal_in_restore(job: Job, rank: int, number: signal.Signals) -> None:
    os.kill(job.wait("begun", rank=rank)["pid"], number)


def num_read(pid: int) -> int:
    """What a process has read from files so far, from memory or not."""
    return int(Path(f"/proc/{pid}/io").read_text().split()[1])


def watch_reading(job: Job) -> list[tuple[float, int, float]]:
    """How much both ranks together had read, with a time before and one after the look, until they have restored."""
    pids = [job.wait("begun", rank=rank)["pid"] for rank in (0, 1)]
    seen = []
    while len(job.find("started")) < 2:
        before_s = SystemClock().now()
        seen.append((before_s, sum(num_read(pid) for pid in pids), SystemClock().now()))
        time.sleep(0.02)
    return seen


def is_loaded(job: Job, step: int) -> bool:
    """Every value of both ranks is that of the step."""
    wanted = [NUM_FLOATS * (step + index / 8) for index in range(4)] + [1000 * (step + 0.5)]
    return all(job.wait("started", rank=rank)["sums"] == wanted for rank in (0, 1))


def finish(job: Job) -> None:
    job.finish()
    job.end()
    assert job.codes() == [0] * len(job.find("begun"))


def test_two_ranks_read_at_the_read_budget_together_under_one_lease(
    restore: Callable[..., Job], saved: list[int], tmp_path: Path, pool: Callable[..., dict[str, str]]
) -> None:
    """60 MB at 20 MB/s take about 3 s, in no second is more read, and the lease is back when all is verified."""
    with serving(tmp_path, "--fresh", **pool()) as coordinator:
        job = restore(coordinator)
        wait_until_reading(job)
        (lease,) = leases(coordinator)
        seen = watch_reading(job)
        assert (lease["kind"], lease["bytes_per_s"]) == ("read", BUDGET)
        assert 60 * MB < lease["num_bytes"] < 61 * MB
        wait_for(lambda: not leases(coordinator), what="the end of the lease")
        assert is_loaded(job, saved[0])
        finish(job)
    assert all(2.2 < said["took_s"] < 10.0 for said in job.find("started"))
    begun_s, ended_s = rates(job)[0][0], rates(job)[-1][0]
    assert 2.2 < ended_s - begun_s < 10.0
    reading = [look for look in seen if look[2] < ended_s]
    for before_s, was, _ in reading:
        in_a_second = [count - was for _, count, after_s in reading if 0 < after_s - before_s <= 1.0]
        assert max(in_a_second) <= BUDGET + BURST_BYTES + IN_HAND_BYTES


def test_the_coordinator_hears_of_the_bytes_of_all_ranks(
    restore: Callable[..., Job], tmp_path: Path, pool: Callable[..., dict[str, str]]
) -> None:
    """While it is read, more than one rank has."""
    with serving(tmp_path, "--fresh", **pool("12.5MB/s")) as coordinator:
        job = restore(coordinator)
        told: list[int] = []
        while len(job.find("started")) < 2:
            told += [lease["done_bytes"] for lease in leases(coordinator)]
            time.sleep(0.1)
        finish(job)
    assert max(told) > 31 * MB


def test_a_coordinator_that_is_stopped_lets_both_ranks_pause_and_go_on(
    restore: Callable[..., Job], saved: list[int], tmp_path: Path, pool: Callable[..., dict[str, str]]
) -> None:
    """When the lease lapses neither rank reads, for longer than a collective may take; then they read all the rest."""
    with serving(tmp_path, "--fresh", **pool("5MB/s")) as coordinator:
        job = restore(coordinator, seed=seed_for(25.0, 30.0))
        wait_until_reading(job)
        coordinator.process.send_signal(signal.SIGSTOP)
        wait_for(lambda: rates(job)[-1][1] == "0", what="the end of the lease")
        pids = [job.wait("begun", rank=rank)["pid"] for rank in (0, 1)]
        time.sleep(1.0)
        before = [num_read(pid) for pid in pids]
        time.sleep(9.0)  # the limit of a collective is 8 s here
        assert all(num_read(pid) - was < MB for pid, was in zip(pids, before, strict=True))
        coordinator.process.send_signal(signal.SIGCONT)
        assert is_loaded(job, saved[0])
        finish(job)


def test_a_coordinator_that_dies_holds_both_up_for_the_lease_and_the_delay(
    restore: Callable[..., Job], saved: list[int], tmp_path: Path, pool: Callable[..., dict[str, str]]
) -> None:
    """At 2 MB/s it would take 30 s: after the delay they read on without one, at no limit."""
    with serving(tmp_path, "--fresh", **pool("2.5MB/s")) as coordinator:
        job = restore(coordinator, seed=seed_for(2.0, 3.0))
        wait_until_reading(job)
        coordinator.process.kill()
        coordinator.process.wait()
        assert is_loaded(job, saved[0])
        finish(job)
    assert [rate for _, rate in rates(job)] == [str(2 * MB), "0", "None", "0"]
    assert all(2.0 < said["took_s"] < 28.0 for said in job.find("started"))


@pytest.mark.parametrize("gone", [0, 1])
def test_a_rank_that_is_killed_in_mid_restore_ends_it_on_the_other(
    restore: Callable[..., Job], tmp_path: Path, pool: Callable[..., dict[str, str]], gone: int
) -> None:
    """The other gets an error at once, and no lease stays for longer than its time."""
    with serving(tmp_path, "--fresh", **pool("2.5MB/s")) as coordinator:
        job = restore(coordinator)
        wait_until_reading(job)
        signal_in_restore(job, gone, signal.SIGKILL)
        other = 1 - gone
        error = job.wait("refused", rank=other)["error"]
        wait_for(
            lambda: not leases(coordinator), what="the end of the lease", limit_s=12.0 if gone == 0 else 5.0
        )
        job.end()
    assert re.match(
        r"RestoreError: step \d+ \(.*\) cannot be loaded: the ranks of this job lost each other: ", error
    )
    assert (job.codes()[gone], job.codes()[other]) == (-signal.SIGKILL, 2)


@pytest.mark.parametrize("noticed", [0, 1])
def test_a_notice_on_one_rank_ends_the_restore_on_both(
    restore: Callable[..., Job], tmp_path: Path, pool: Callable[..., dict[str, str]], noticed: int
) -> None:
    """Code 75 on both, so that supervisors start them again; the lease is given back."""
    with serving(tmp_path, "--fresh", **pool("2.5MB/s")) as coordinator:
        job = restore(coordinator)
        wait_until_reading(job)
        signal_in_restore(job, noticed, signal.SIGTERM)
        wait_for(lambda: not leases(coordinator), what="the end of the lease", limit_s=5.0)
        job.end()
    assert job.codes() == [75, 75]
    assert not job.find("started")


def test_with_the_switch_off_both_read_at_once(
    start: Callable[..., Job], saved: list[int], tmp_path: Path
) -> None:
    """Nobody is asked, and nobody waits."""
    job = start(restores=True, options={"interval_max_s": 1000.0}, limit_s=20.0)
    assert is_loaded(job, saved[0])
    finish(job)
    assert all(said["took_s"] < 3.0 for said in job.find("started"))
    assert [rate for _, rate in rates(job)] == ["None", "0"]


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("ill", "number"),
    [(0, signal.SIGSTOP), (2, signal.SIGSTOP), (0, signal.SIGKILL), (1, signal.SIGKILL)],
    ids=["rank 0 stands still", "rank 2 stands still", "rank 0 is killed", "rank 1 is killed"],
)
def test_a_rank_that_is_gone_in_mid_restore_is_named_and_the_next_start_restores(
    start: Callable[..., Job],
    tmp_path: Path,
    pool: Callable[..., dict[str, str]],
    ill: int,
    number: signal.Signals,
) -> None:
    """Killed, or stopped for three leases: no other hangs, the lease comes back, and whoever wakes up ends as well."""
    options: dict[str, Any] = {"interval_max_s": 1.0}
    job = start(3, num_floats=NUM_FLOATS // 2, options=options)
    step = job.wait("saved", rank=0, committed=True)["step"]
    job.kill()
    job.end()
    with serving(tmp_path, "--fresh", **pool("2.5MB/s")) as coordinator:
        options |= {"coordinator": coordinator.url, "interval_max_s": 1000.0}
        job = start(3, num_floats=NUM_FLOATS // 2, options=options, restores=True, limit_s=20.0)
        wait_until_reading(job)
        signal_in_restore(job, ill, number)
        since_s = time.monotonic()
        errors = [job.wait("refused", rank=rank)["error"] for rank in range(3) if rank != ill]
        assert time.monotonic() - since_s < COLLECTIVE_LIMIT_S + LEAVE_S
        wait_for(lambda: not leases(coordinator), what="the end of the lease", limit_s=TTL_S + 2.0)
        if number is signal.SIGSTOP:
            time.sleep(max(0.0, since_s + 3.0 * TTL_S - time.monotonic()))
            signal_in_restore(job, ill, signal.SIGCONT)
            assert job.wait("refused", rank=ill)["error"].startswith("RestoreError: ")
        job.end()
        assert job.codes() == [2 if rank != ill or number is signal.SIGSTOP else -number for rank in range(3)]
        assert not job.find("started")
    who = "rank 0 (is heard no more|has been silent)" if ill == 0 else f"rank {ill} has been silent"
    lost = rf"RestoreError: step {step} \(.*\) cannot be loaded: the ranks of this job lost each other: {who}"
    assert all(re.match(lost, error) for error in errors), errors
    with serving(tmp_path, "--fresh", **pool("25MB/s")) as coordinator:
        options["coordinator"] = coordinator.url
        job = start(3, num_floats=NUM_FLOATS // 2, options=options, restores=True, limit_s=20.0)
        wanted = [NUM_FLOATS // 2 * (step + index / 8) for index in range(4)] + [1000 * (step + 0.5)]
        assert all(job.wait("started", rank=rank)["sums"] == wanted for rank in range(3))
        finish(job)
