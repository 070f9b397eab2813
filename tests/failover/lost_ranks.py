"""Four ranks of one job, one of them ill in the middle of a flush, with every limit as it is shipped.

The tests of the same (tests/system) shorten the limits, so that they are over soon; here it is seen how long the others
really wait: for the end of the save, for the lease, in a call of `step`, for the next save, at the end. Each story
yields what was measured and fails where somebody waited for longer than docs/operations.md says.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import torch

from rampmeter.core.clock import SystemClock
from rampmeter.layout import Root
from rampmeter.ranks.agreement import LONGEST_WAIT_S
from rampmeter.ranks.group import COLLECTIVE_LIMIT_S
from rampmeter.ranks.liveness import SILENT_S
from rampmeter.restore import restore
from rampmeter_coordinator.model.pool import PoolConfig
from support.forked_job import Job, starting
from support.servers import Coordinator, listening, serving
from support.waiting import wait_for

Finding = tuple[str, Any]

NUM_RANKS = 4
ILL = 1
OTHERS = (0, 2, 3)
NUM_FLOATS = 1_000_000
"""In each of a rank's four tensors: 16 MB a rank, at 8 MB/s for all of them eight seconds."""

QUOTA_BYTES = 3_000_000
STOPPED_TTLS = 3
TTL_S = PoolConfig(name="default", capacity_bytes_per_s=1).ttl_s
SLACK_S = 5.0
"""For beats, a round trip and a busy machine; every limit is twice as long at least."""

LIMIT_S = 300.0
CLOCK = SystemClock()


@dataclass(kw_only=True)
class Scene:
    """The job, its coordinator and its root; `since_s` is when something became ill."""

    job: Job
    coordinator: Coordinator
    root: Root
    since_s: float = 0.0
    findings: list[Finding] = field(default_factory=list)

    def pool(self, what: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = httpx.get(f"{self.coordinator.url}/v1/pools/default/{what}").json()[what]
        return rows

    def wait(self, condition: Callable[[], object], what: str) -> None:
        wait_for(condition, what=what, limit_s=LIMIT_S)

    def measure(self, what: str, condition: Callable[[], object], at_most_s: float) -> None:
        """How long after the illness it came to this; as documented, or the story fails."""
        self.wait(condition, what)
        took_s = CLOCK.now() - self.since_s
        self.findings.append((f"{what}, s (limit {at_most_s:.0f})", f"{took_s:.1f}"))
        assert took_s <= at_most_s, f"{what}: {took_s:.1f} s"

    def falls_ill(self, number: signal.Signals) -> None:
        """The ill rank gets this signal in the middle of a flush that is not the first."""
        for rank in range(NUM_RANKS):
            self.wait(lambda rank=rank: self.job.find("saved", rank=rank, committed=True), "a first save")
        begun = len(self.job.find("SaveStarted"))
        self.wait(lambda: len(self.job.find("SaveStarted")) > begun, "the next save")
        self.wait(lambda: any(lease["done_bytes"] for lease in self.pool("leases")), "bytes")
        self.since_s = CLOCK.now()
        self.job.send(ILL, number)

    def save_ends(self, *ranks: int, reason: str) -> None:
        """The lease is back, and no rank waits for the save any more; the coordinator sees it so."""
        limit_s = SILENT_S + SLACK_S
        self.measure("the lease is given back", lambda: not self.pool("leases"), limit_s)
        limit_s = SILENT_S + COLLECTIVE_LIMIT_S + SLACK_S
        for rank in ranks:
            self.measure(
                f"rank {rank} is through with it", lambda rank=rank: self.has_given_up(rank), limit_s
            )
        (row,) = self.pool("jobs")
        assert (row["num_failed"], row["last_failure"]) == (1, reason)
        committed = [said["step"] for said in self.job.find("saved", rank=0, committed=True)]
        assert row.get("committed_step") == (committed[-1] if committed else None)

    def has_given_up(self, rank: int) -> bool:
        """Its agent says so; training, which meets in every step, may be waiting for the ill one."""
        return any("was not saved" in said["message"] for said in self.job.find("warned", rank=rank))

    def next_save(self, at_most_s: float) -> None:
        """Committed on all ranks, and what is there then is whole."""
        before = [len(self.job.find("saved", rank=rank, committed=True)) for rank in range(NUM_RANKS)]
        for rank in range(NUM_RANKS):
            saved = {"rank": rank, "committed": True}
            self.measure(
                f"rank {rank} has saved again",
                lambda saved=saved: len(self.job.find("saved", **saved)) > before[saved["rank"]],
                at_most_s,
            )

    def ends(self, *ranks: int, at_most_s: float) -> None:
        """Training is through: how long these ranks need to go, and what their slowest call of `step` was."""
        self.since_s = CLOCK.now()
        self.job.finish()
        for rank in ranks:
            self.measure(
                f"rank {rank} is gone", lambda rank=rank: self.job.find("exited", rank=rank), at_most_s
            )
        slowest = {rank: self.job.find("left", rank=rank)[0]["slowest_s"] for rank in ranks}
        self.findings.append(("slowest call of step(), s", f"{max(slowest.values()):.2f}"))
        assert {said["code"] for said in self.job.find("exited") if said["rank"] in ranks} == {0}
        assert max(slowest.values()) <= LONGEST_WAIT_S + 1.0, slowest

    def last_one_is_whole(self) -> None:
        """Every value of every rank is of one step, which is the one that the coordinator knows."""
        own = {f"rank{rank}.{n}": torch.zeros(NUM_FLOATS) for rank in range(NUM_RANKS) for n in range(4)}
        found = restore(self.root, {"own": own, "shared": torch.zeros(1000), "note": ""})
        assert found is not None
        assert all(bool((own[name] == found.step + int(name[-1]) / 8).all()) for name in own)
        assert [row["committed_step"] for row in self.pool("jobs")] == [found.step]
        self.findings.append(("the step that comes back", found.step))


@contextmanager
def scene(directory: Path, **more: Any) -> Iterator[Scene]:
    """A budget of 8 MB/s; leases, silence and collectives as shipped."""
    config = directory / "rampmeter.toml"
    config.write_text('[pools.default]\ncapacity = "10MB/s"\n')
    with (
        serving(directory, "--fresh", "--config", str(config), RAMPMETER_STORE="sqlite") as coordinator,
        listening("support.crew_job") as parent,
        starting(parent, directory / "group") as start,
    ):
        options = {"interval_max_s": 2.0, "coordinator": coordinator.url}
        root = Root(directory / "root")
        job = start(
            NUM_RANKS,
            root=str(root.path),
            options=options,
            num_floats=NUM_FLOATS,
            step_s=0.02,
            limit_s=LIMIT_S,
            limits_as_shipped=True,
            **more,
        )
        try:
            yield Scene(job=job, coordinator=coordinator, root=root)
        finally:
            job.kill()  # whatever still waits, where a story has failed


def failed_write(directory: Path, _: object) -> Iterator[Finding]:
    """Four ranks, the files of one may not be longer than 3 MB: its first save fails with EFBIG."""
    with scene(
        directory, largest_file=[QUOTA_BYTES if rank == ILL else None for rank in range(NUM_RANKS)]
    ) as one:
        shard = lambda: next(one.root.path.glob(f"step-*/__{ILL}_*"), None)  # noqa: E731
        one.wait(lambda: (found := shard()) and _size(found) >= QUOTA_BYTES, "the quota")
        one.since_s = CLOCK.now()
        one.save_ends(*range(NUM_RANKS), reason="efbig")
        one.next_save(SILENT_S + COLLECTIVE_LIMIT_S + SLACK_S)
        one.ends(*range(NUM_RANKS), at_most_s=SILENT_S + SLACK_S)
        one.last_one_is_whole()
        yield from one.findings


def _size(path: Path) -> int:
    """0 for one that has just been removed."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def killed_rank(directory: Path, _: object) -> Iterator[Finding]:
    """Four ranks, SIGKILL of one in the middle of a flush; the others train on for as long as they may wait."""
    with scene(directory) as one:
        one.falls_ill(signal.SIGKILL)
        one.save_ends(*OTHERS, reason="rank_failed")
        threading.Event().wait(
            SILENT_S + COLLECTIVE_LIMIT_S
        )  # what is shown is that no call waits in this time
        one.ends(*OTHERS, at_most_s=SILENT_S + COLLECTIVE_LIMIT_S + SLACK_S)
        one.last_one_is_whole()
        yield from one.findings


def stopped_rank(directory: Path, _: object) -> Iterator[Finding]:
    """Four ranks that meet in every step, SIGSTOP of one in the middle of a flush for three times a lease's life."""
    with scene(directory, in_step=True) as one:
        one.falls_ill(signal.SIGSTOP)
        stopped_s = one.since_s
        one.save_ends(*OTHERS, reason="rank_failed")
        one.wait(lambda: CLOCK.now() >= stopped_s + STOPPED_TTLS * TTL_S, "three leases")
        one.since_s = CLOCK.now()
        one.job.send(ILL, signal.SIGCONT)
        one.next_save(SILENT_S + COLLECTIVE_LIMIT_S + SLACK_S)
        one.ends(*range(NUM_RANKS), at_most_s=SILENT_S + SLACK_S)
        one.last_one_is_whole()
        yield ("stopped for, s", f"{STOPPED_TTLS * TTL_S:.0f}")
        yield from one.findings
