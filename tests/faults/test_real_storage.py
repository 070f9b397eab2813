"""A real job under a real coordinator whose storage fails in the middle of a save, each time in another real way.

Always the same story: a checkpoint is committed, the storage gets into trouble while the next one is written, the
trouble ends. Training goes on all the while, the right reason is told, the slot is free within a second of the fault,
nothing stays of the failed save, the checkpoint before is whole, and the next one is committed.
"""

import contextlib
import re
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.full_writer import said
from support.fuse import Remount, needs_fuse
from support.observed_training import KEEP, ObservedJob, observed, restored_step
from support.release import Release
from support.servers import Coordinator, running, serving
from support.small_disk import fill, may_mount, small_disk
from support.waiting import wait_for

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

STATE_BYTES = 24_000_000
CAPACITY = {"RAMPMETER_CAPACITY": "10MB/s"}
"""A flush of 3 s at the budget: time enough to get into its middle."""

STANDSTILL_S = 6.0
"""Of the two minutes for which a writer may stand still."""

RELEASED_WITHIN_S = 1.0
SLACK_S = 0.5
"""For a machine on which other tests run: a chunk that is still waited for, and the looks of the observer."""

needs_strace = pytest.mark.debian("strace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A job that trains under `root`. disk: the small file system that it has for itself; None = nobody may mount."""

    job: ObservedJob
    root: Path
    coordinator: Coordinator
    log: Path
    disk: Path | None


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    with serving(tmp_path_factory.mktemp("coordinator"), "--fresh", **CAPACITY) as found:
        yield found


@pytest.fixture(scope="module")
def scene(coordinator: Coordinator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """One job for all troubles of a disk: after each of them it must be as good as new."""
    where = tmp_path_factory.mktemp("disk")
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(small_disk(where / "disk", 5 * STATE_BYTES)) if may_mount() else None
        root, log = (disk or where) / "local", where / "log"
        job = stack.enter_context(observed(root, coordinator.url, STATE_BYTES, log))
        yield Scene(job=job, root=root, coordinator=coordinator, log=log, disk=disk)


class Writing:
    """A save that is in the middle of `shard`."""

    def __init__(self, scene: Scene, shard: Path) -> None:
        self._scene = scene
        self.shard = shard
        self.release: Release | None = None

    def fails_when(self, is_fault: Callable[[], object]) -> None:
        """From then on it is measured how long the slot is still held."""
        self.release = Release(self._scene.coordinator.url, self._scene.root.name, is_fault)


@contextmanager
def story(scene: Scene, reason: str) -> Iterator[Writing]:
    """Everything but the trouble itself, which the block makes and ends."""
    job = scene.job
    first = job.wait("SaveEnded")
    assert first["reason"] is None
    num_failed, num_told = _row(scene)["num_failed"], _counted(scene, reason)
    writing = Writing(scene, job.wait_until_writing(scene.root))
    since = job.mark
    yield writing
    failed = job.wait("SaveEnded", since=since)
    assert failed["reason"] == reason, scene.log.read_text()
    job.wait_for_steps(4)
    idle = job.wait("StateChanged", lambda event: event["state"] == "idle", since=since)
    assert idle["now_s"] - failed["now_s"] <= RELEASED_WITHIN_S, "the slot was given back"
    assert writing.release is not None
    assert writing.release.took_s() <= RELEASED_WITHIN_S + SLACK_S, "the slot is free soon after the fault"
    assert (_row(scene)["num_failed"], _row(scene)["last_failure"]) == (num_failed + 1, reason)
    assert _counted(scene, reason) == num_told + 1
    assert f"step {failed['step']} was not saved ({reason})" in scene.log.read_text()
    before = [event["step"] for event in job.all("SaveEnded")[:-1] if event["reason"] is None]
    assert (restored_step(scene.root, STATE_BYTES) or 0) >= before[-1], "the last good one is whole"
    saved = job.wait("SaveEnded", lambda event: event["reason"] is None, since=since)
    assert (restored_step(scene.root, STATE_BYTES) or 0) >= saved["step"] > failed["step"]
    leftover = scene.root / failed["directory"]
    wait_for(
        lambda: not leftover.exists(), what="the removal of the failed one, after the next one's end is told"
    )


def _row(scene: Scene) -> dict[str, Any]:
    """The job as the coordinator has it."""
    found = httpx.get(f"{scene.coordinator.url}/v1/pools/default/jobs").json()["jobs"]
    return next(row for row in found if row["name"] == scene.root.name)


def _counted(scene: Scene, reason: str) -> float:
    """What the pool's metrics have counted for this reason."""
    metrics = httpx.get(f"{scene.coordinator.url}/metrics").text
    found = re.search(rf'rampmeter_failed_saves_total{{pool="default",reason="{reason}"}} (\S+)', metrics)
    assert found is not None
    return float(found[1])


@pytest.fixture
def disk(scene: Scene) -> Path:
    if scene.disk is None:
        pytest.skip("mounting a small file system needs root")
    return scene.disk


def test_a_disk_that_fills_up_in_the_middle_of_a_save(scene: Scene, disk: Path) -> None:
    """ENOSPC: something else takes the space, and gives it back."""
    with story(scene, "enospc") as writing:
        fill_up(scene, disk, writing)


def fill_up(scene: Scene, disk: Path, writing: Writing) -> None:
    """Until the save has ended."""
    since, is_full = scene.job.mark, threading.Event()
    writing.fails_when(is_full.is_set)
    ballast = fill(disk)
    is_full.set()
    scene.job.wait("SaveEnded", since=since)
    ballast.unlink()


@pytest.mark.skipif(not may_mount(), reason="mounting a small file system needs root")
def test_a_disk_that_fills_up_under_a_process_that_writes(tmp_path: Path, coordinator: Coordinator) -> None:
    """ENOSPC in the process beside training: the same story, and it is that process which goes on writing."""
    with small_disk(tmp_path / "disk", 5 * STATE_BYTES) as disk:
        root, log = disk / "beside", tmp_path / "log"
        with observed(root, coordinator.url, STATE_BYTES, log, mode="process") as job:
            scene = Scene(job=job, root=root, coordinator=coordinator, log=log, disk=disk)
            with story(scene, "enospc") as writing:
                assert beside(job, writing.shard)
                fill_up(scene, disk, writing)
    assert "in a thread of training" not in log.read_text()


def beside(job: ObservedJob, shard: Path) -> list[int]:
    """Children of the training process that have the shard open."""
    pid = job.process.pid
    children = [
        int(word)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for word in (task / "children").read_text().split()
    ]
    return [
        child
        for child in children
        if any(shard == path.readlink() for path in Path(f"/proc/{child}/fd").iterdir())
    ]


def test_a_full_device_in_place_of_the_storage(tmp_path: Path, coordinator: Coordinator) -> None:
    """/dev/full: the first write already fails; each save that is tried while it is there does, and none after it."""
    root, log, full = tmp_path / "full-device", tmp_path / "log", tmp_path / "full"
    with observed(root, coordinator.url, STATE_BYTES // 8, log, full=full) as job:
        scene = Scene(job=job, root=root, coordinator=coordinator, log=log, disk=None)
        first = job.wait("SaveEnded")
        assert first["reason"] is None
        num_told, since = _counted(scene, "enospc"), job.mark
        release = Release(coordinator.url, root.name, said(full).exists)
        full.touch()
        failed = job.wait("SaveEnded", lambda event: event["reason"] is not None, since=since)
        assert failed["reason"] == "enospc"
        assert release.took_s() <= RELEASED_WITHIN_S + SLACK_S
        full.unlink()
        job.wait_for_steps(4)
        assert _counted(scene, "enospc") > num_told
        assert restored_step(root, STATE_BYTES // 8) >= first["step"]
        saved = job.wait(
            "SaveEnded", lambda event: event["step"] > failed["step"] and event["reason"] is None
        )
        wait_for(lambda: not (root / failed["directory"]).exists(), what="the removal of the failed one")
        assert restored_step(root, STATE_BYTES // 8) >= saved["step"]


def test_a_disk_that_is_too_full_for_the_next_save(scene: Scene, disk: Path) -> None:
    """It is not even attempted and no slot is asked for, until there is space; the reason is told all the same."""
    job = scene.job
    job.wait("SaveEnded", since=job.mark)
    most = KEEP + 1  # one that was read back stays beside the newest
    wait_for(lambda: len(list(scene.root.glob("step-*"))) <= most, what="the removal of the oldest")
    num_failed, since = _row(scene)["num_failed"], job.mark
    ballast = fill(disk, left_bytes=STATE_BYTES // 2)
    held_back = job.wait("SaveHeldBack", since=since)
    since = job.mark
    assert held_back["reason"] == "enospc"
    job.wait_for_steps(20)
    assert not job.all("SaveStarted", since)
    assert "left for a checkpoint of 24 MB: free space" in scene.log.read_text()
    wait_for(lambda: _row(scene)["num_failed"] > num_failed, what="the failure in the job's row")
    assert _row(scene)["last_failure"] == "enospc"
    assert restored_step(scene.root, STATE_BYTES) is not None
    ballast.unlink()
    saved = job.wait("SaveEnded", since=since)
    assert saved["reason"] is None


def test_a_file_that_grows_past_its_limit(scene: Scene) -> None:
    """EFBIG: `ulimit -f` of the running process."""
    with story(scene, "efbig") as writing:
        limit_bytes, shard = STATE_BYTES // 2, writing.shard
        writing.fails_when(lambda: not shard.exists() or shard.stat().st_size >= limit_bytes)
        since, pid = scene.job.mark, scene.job.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit_bytes, resource.RLIM_INFINITY))
        scene.job.wait("SaveEnded", since=since)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


@needs_strace
@pytest.mark.parametrize("call", ["write", "fsync", "close"])
def test_a_device_that_reports_errors(scene: Scene, tmp_path: Path, call: str) -> None:
    """EIO of the shard, wherever the kernel says it: in the middle, when it must be durable, when it is closed."""
    calls, log = tmp_path / "calls", tmp_path / "strace.log"
    with story(scene, "eio") as writing:
        since, pid = scene.job.mark, str(scene.job.process.pid)
        command = ["strace", "-f", "-p", pid, "-P", str(writing.shard), "-o", str(calls)]
        writing.fails_when(lambda: calls.exists() and "(INJECTED)" in calls.read_text())
        with running([*command, "-e", f"inject={call}:error=EIO"], log) as strace:
            scene.job.wait("SaveEnded", since=since)
            assert strace.poll() is None, log.read_text()
            strace.send_signal(signal.SIGINT)
            strace.wait(15)
        assert "(INJECTED)" in calls.read_text()


@contextmanager
def shared_scene(where: Path, coordinator: Coordinator, name: str, **options: Any) -> Iterator[Scene]:
    """A job on the mount."""
    root, log = where / "mount" / name, where / "log"
    with observed(root, coordinator.url, STATE_BYTES, log, **options) as job:
        yield Scene(job=job, root=root, coordinator=coordinator, log=log, disk=None)


@needs_fuse
def test_a_mount_that_loses_its_server(tmp_path: Path, coordinator: Coordinator, remount: Remount) -> None:
    """ENOTCONN; the leftovers cannot be removed before it is mounted again, and go when the next save has ended."""
    server = remount()
    with shared_scene(tmp_path, coordinator, "lost") as scene, story(scene, "enotconn") as writing:
        since = scene.job.mark
        writing.fails_when(lambda: server.poll() is not None)
        server.kill()
        scene.job.wait("SaveEnded", since=since)
        remount()


@needs_fuse
def test_a_mount_that_hangs(tmp_path: Path, coordinator: Coordinator, remount: Remount) -> None:
    """Neither training nor the conversation with the coordinator waits for it; what was begun is finished."""
    server = remount()
    with shared_scene(tmp_path, coordinator, "hung") as scene:
        job = scene.job
        job.wait("SaveEnded")
        job.wait_until_writing(scene.root)
        since = job.mark
        server.send_signal(signal.SIGSTOP)
        try:
            job.wait_for_steps(60)
            assert _row(scene)["contact_age_s"] < 20.0
            assert not job.all("SaveEnded", since)
        finally:
            server.send_signal(signal.SIGCONT)
        saved = job.wait("SaveEnded", since=since)
        assert saved["reason"] is None
    assert (restored_step(scene.root, STATE_BYTES) or 0) >= saved["step"]


@needs_fuse
@pytest.mark.parametrize("mode", ["thread", "process"])
def test_a_mount_that_hangs_for_too_long(
    tmp_path: Path, coordinator: Coordinator, remount: Remount, mode: str
) -> None:
    """The save is given up while its writer is still in the kernel; none is begun before the mount is back."""
    server = remount()
    with (
        shared_scene(tmp_path, coordinator, f"still-{mode}", mode=mode, standstill_s=STANDSTILL_S) as scene,
        story(scene, "no_progress") as writing,
    ):
        job, since = scene.job, scene.job.mark
        writing.fails_when(lambda: job.all("SaveEnded", since))
        server.send_signal(signal.SIGSTOP)
        try:
            job.wait("SaveEnded", since=since)
            over = job.mark
            job.wait_for_steps(60)
            assert not job.all("SaveStarted", over)
            assert not job.all("SaveEnded", over)
        finally:
            server.send_signal(signal.SIGCONT)
