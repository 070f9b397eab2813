"""The saver: snapshots that do not tear, saves that never raise into training, failures that leave nothing behind."""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemWriter

from rampmeter import commit as commit_module
from rampmeter.core.errors import ConfigError
from rampmeter.core.messages import Fence
from rampmeter.core.notice import GiveUp
from rampmeter.layout import MANIFEST_NAME, Root
from rampmeter.manifest import read_manifest
from rampmeter.restore import restore
from rampmeter.saving import Saver, SaveReport
from rampmeter.throttle import Throttle
from support.flush_threads import wait_for_their_end
from support.waiting import wait_for

LIMIT_S = 60.0
MIB = 1024 * 1024


def _only_bookkeeping(root: Root) -> bool:
    return {path.name for path in root.path.iterdir()} <= {"JOB_UID", "attempts", "LATEST"}


def test_a_report_tells_all(root: Root, make_saver: Any, make_run: Any, save: Any) -> None:
    """A committed save has sizes, durations in order, and what the manifest repeats."""
    run = make_run()
    report: SaveReport = save(
        make_saver(config={"lr": 1}, code_commit="abc"), 5, run.state, lease=Fence(epoch=3, counter=4)
    )
    assert (report.committed, report.reason, report.step) == (True, None, 5)
    assert 0 < report.stage_s <= report.stall_s <= report.write_s
    assert 0 < report.lead_s <= report.write_s
    manifest = read_manifest(root.path / report.directory)
    assert (manifest.step, manifest.config, manifest.code_commit) == (5, {"lr": 1}, "abc")
    assert manifest.lease is not None
    assert (manifest.lease.fence_epoch, manifest.lease.fence_counter) == (3, 4)
    assert manifest.timings.stall_s == report.stall_s
    assert manifest.extras.data_position
    assert root.read_latest() == root.committed_steps()[0]


def test_parents_are_named(root: Root, make_saver: Any, make_run: Any, save: Any) -> None:
    """Each commit names the one before it; a failed save in between does not count."""
    run, saver = make_run(), make_saver()
    first = save(saver, 1, run.state)
    save(saver, 2, {"bad": torch.tensor(float("nan"))})
    second = save(saver, 3, run.state)
    assert read_manifest(root.path / first.directory).parent is None
    assert read_manifest(root.path / second.directory).parent == first.directory


def test_the_snapshot_does_not_tear(root: Root, make_saver: Any) -> None:
    """Everything is changed again and again right after `begin`; the checkpoint holds the instant of the call."""
    model = nn.Linear(512, 512)
    numbers, nested = [1, 2, 3], {"a": {"b": [0]}}
    state = {"model": model, "numbers": numbers, "nested": nested, "table": torch.zeros(1000)}
    expected = {key: value.clone() for key, value in model.state_dict().items()}
    throttle = Throttle()
    throttle.set_rate(4 * MIB)
    future = make_saver().begin(1, state, throttle)
    while not future.done():
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1.0)
            state["table"].add_(1.0)  # type: ignore[attr-defined]
        numbers.append(4)
        nested["a"]["b"][0] += 1
    assert future.result().committed
    assert restore(root, state) is not None
    torch.testing.assert_close(dict(model.state_dict()), expected, rtol=0, atol=0)
    assert (state["numbers"], state["nested"]) == ([1, 2, 3], {"a": {"b": [0]}})
    assert not bool(state["table"].any())  # type: ignore[attr-defined]


def test_taking_snapshots_does_not_change_training(
    root: Root, make_saver: Any, make_run: Any, save: Any
) -> None:
    """A run that is saved at every step has the losses of one that is never saved, from before the first step on."""
    plain_run = make_run()
    plain_run.train(6)
    saved_run, saver = make_run(), make_saver()
    for step in range(6):
        assert save(saver, step, saved_run.state).committed
        saved_run.train(1)
    assert saved_run.losses == plain_run.losses


def test_begin_returns_while_the_flush_is_paused(root: Root, make_saver: Any, make_run: Any) -> None:
    """An armed save holds up nobody: training goes on, a second save is answered `in_flight`, closing aborts."""
    run, saver = make_run(), make_saver()
    ready = threading.Event()
    first = saver.begin(1, run.state, Throttle(), on_first_byte=lambda _num_bytes: ready.set())
    assert ready.wait(LIMIT_S)
    second = saver.begin(2, run.state, Throttle())
    assert (second.done(), second.result().reason, second.result().committed) == (True, "in_flight", False)
    assert saver.in_flight
    assert not saver.close(limit_s=0.0)
    report = first.result(LIMIT_S)
    assert (report.reason, report.committed) == ("closing", False)
    assert _only_bookkeeping(root)


def test_abort_leaves_nothing_and_the_next_save_works(
    root: Root, make_saver: Any, make_run: Any, save: Any
) -> None:
    """A revoked lease ends the save with its reason; the saver goes on."""
    run, saver = make_run(), make_saver()
    throttle = Throttle()
    throttle.set_rate(1000)
    future = saver.begin(1, run.state, throttle)
    throttle.abort("revoked")
    assert future.result(LIMIT_S).reason == "revoked"
    assert _only_bookkeeping(root)
    assert save(saver, 2, run.state).committed


@pytest.mark.parametrize("reason", list(GiveUp))
def test_a_save_that_is_given_up_stops_within_one_chunk_and_leaves_nothing(
    root: Root, make_saver: Any, reason: GiveUp
) -> None:
    """Half of it is written when the word comes: not one chunk more leaves, no file stays, the reason is told."""
    throttle = Throttle()
    throttle.set_rate(4 * MIB)
    future = make_saver().begin(1, {"table": torch.zeros(4 * MIB)}, throttle)
    wait_for(lambda: throttle.counters().done_bytes >= 2 * MIB, what="some bytes out")
    throttle.abort(reason)
    before_bytes = throttle.counters().done_bytes
    report = future.result(LIMIT_S)
    assert (report.committed, report.reason) == (False, reason)
    assert report.counters.done_bytes <= before_bytes + throttle.window_bytes() + throttle.chunk_bytes()
    assert _only_bookkeeping(root)


class ManyThreads(FileSystemWriter):
    """A writer that would write with four threads."""

    def __init__(self, path: Any, **kwargs: Any) -> None:
        super().__init__(path, thread_count=4, **kwargs)


@pytest.mark.parametrize(("max_streams", "num_files"), [(None, 4), (6, 4), (2, 2), (1, 1), (0, 1)])
def test_a_lease_bounds_the_writing_threads(
    root: Root, make_saver: Any, save: Any, max_streams: int | None, num_files: int
) -> None:
    """As many as the writer has, at most as many as the lease says, and never none; each thread writes one file."""
    state = {f"t{i}": torch.ones(100) for i in range(8)}
    report = save(make_saver(writer_class=ManyThreads), 1, state, max_streams=max_streams)
    assert report.committed
    assert len(list((root.path / report.directory).glob("*.distcp"))) == num_files


def test_close_waits_for_the_save_in_flight(root: Root, make_saver: Any, make_run: Any) -> None:
    """Within its limit, closing lets the last save finish."""
    run, saver = make_run(width=512), make_saver()
    throttle = Throttle()
    throttle.set_rate(8 * MIB)
    future = saver.begin(1, run.state, throttle)
    assert saver.close(limit_s=LIMIT_S)
    assert future.result().committed


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_newer_attempt_fences_this_one(root: Root, make_saver: Any, make_run: Any, when: str) -> None:
    """Once another attempt has claimed the root, nothing of this one is committed any more."""
    run, saver = make_run(), make_saver()
    throttle = Throttle()

    def ready(_num_bytes: int) -> None:
        if when == "during":
            root.claim_attempt()
        throttle.set_rate(None)

    if when == "before":
        root.claim_attempt()
    report = saver.begin(1, run.state, throttle, on_first_byte=ready).result(LIMIT_S)
    assert (report.committed, report.reason) == (False, "superseded")
    assert root.committed_steps() == []
    assert _only_bookkeeping(root)


def test_not_finite_state_is_refused_by_reason(root: Root, make_saver: Any, make_run: Any, save: Any) -> None:
    """A NaN costs no byte; unless the user said that such values are meant."""
    run = make_run()
    run.model[0].weight.data[0, 0] = float("nan")
    report = save(make_saver(), 1, run.state)
    assert (report.reason, report.num_bytes) == ("not_finite", 0)
    assert _only_bookkeeping(root)
    assert save(make_saver(check_finite=False), 1, run.state).committed


@pytest.mark.parametrize(
    ("state", "what"),
    [
        ({"lock": threading.Lock()}, "lock"),
        ({"optim": torch.optim.SGD([nn.Parameter(torch.ones(2))])}, "optim"),
        ({"rampmeter": 1}, "rampmeter"),
        ({3: 1}, "3"),
        (lambda: 5, "int"),
        (lambda: 1 / 0, "division"),
    ],
)
def test_a_state_that_cannot_be_saved_is_a_report(
    root: Root, make_saver: Any, save: Any, caplog: pytest.LogCaptureFixture, state: Any, what: str
) -> None:
    """Mistakes in the state never raise into training; the log names the part."""
    if isinstance(state, dict) and "optim" in state:
        next(iter(state["optim"].param_groups))["params"][0].grad = torch.ones(2)
        state["optim"].param_groups[0]["momentum"] = 0.9
        state["optim"].step()
    report = save(make_saver(), 1, state)
    assert report.reason in {"bad_state", "unknown"}
    assert what in caplog.text


def test_warm_up_raises_what_a_save_would_report(make_saver: Any) -> None:
    """At the start a wrong state is an error, while it can still be mended."""
    with pytest.raises(ConfigError, match="lock"):
        make_saver().warm_up({"lock": threading.Lock()})


def test_warm_up_pays_for_the_buffers(make_saver: Any, make_run: Any, save: Any) -> None:
    """After a warm-up the first save finds its buffers allocated."""
    run, saver = make_run(width=256), make_saver()
    run.train(1)
    saver.warm_up(run.state)
    cache = saver._stager._state_dict_stager._cached_storage_mapping
    before = {id(storage) for storage in cache.values()}
    assert save(saver, 1, run.state).committed
    assert before <= {id(storage) for storage in cache.values()}
    assert len(before) >= 3 * len(list(run.model.parameters()))


def test_a_failed_pointer_does_not_unmake_the_commit(
    root: Root, make_saver: Any, make_run: Any, save: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest is the commit; a pointer that stays behind is only logged, and restore does not need it."""
    run, saver = make_run(), make_saver()
    save(saver, 100, run.state)

    def refuse(_self: Root, _name: object) -> None:
        raise PermissionError(errno.EACCES, "busy")

    monkeypatch.setattr(Root, "replace_latest", refuse)
    assert save(saver, 110, run.state).committed
    assert save(saver, 120, run.state).committed
    latest = root.read_latest()
    assert latest is not None
    assert latest.step == 100
    restored = restore(root, run.state)
    assert restored is not None
    assert restored.step == 120


def test_order_of_the_commit(root: Root, make_saver: Any, make_run: Any, save: Any, monkeypatch: Any) -> None:
    """Shards are synced before the manifest appears, its content before its name, its name before the pointer."""
    events: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def note_sync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        events.append(f"sync {'directory' if path.is_dir() else path.name.lstrip('.').split('.')[0]}")
        fsync(descriptor)

    def note_rename(self: Path, target: Path) -> Path:
        events.append(f"rename {target.name}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "replace", note_rename)
    assert save(make_saver(), 1, make_run().state).committed
    events = events[events.index("sync __0_0") :]
    assert events == [
        "sync __0_0",
        "sync metadata",
        "sync BLOCKS",
        "rename BLOCKS",
        "sync directory",
        "sync directory",
        "sync MANIFEST",
        "rename MANIFEST.json",
        "sync directory",
        "sync LATEST",
        "rename LATEST",
        "sync directory",
    ]


def test_a_size_that_does_not_match_is_not_committed(
    root: Root, make_saver: Any, make_run: Any, save: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a file on disk is not as long as what was written, there is no commit."""
    check = commit_module._check_size

    def shorten(path: Path, file: Any) -> None:
        os.truncate(path, file.num_bytes - 1)
        check(path, file)

    monkeypatch.setattr(commit_module, "_check_size", shorten)
    assert save(make_saver(), 1, make_run().state).reason == "size_mismatch"
    assert _only_bookkeeping(root)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    target = tmp_path / "small"
    target.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(target)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    yield target
    subprocess.run(["umount", "-l", str(target)], check=True)


def test_a_full_disk_costs_only_this_save(small_disk: Path, save: Any) -> None:
    """ENOSPC is reported as such, leaves nothing behind, and smaller saves go on."""
    root = Root(small_disk / "root")
    saver = Saver(root, root.claim_attempt(), job="test")
    small, large = {"t": torch.ones(MIB // 4)}, {"t": torch.ones(4 * MIB)}
    assert save(saver, 1, small).committed
    report = save(saver, 2, large)
    assert (report.committed, report.reason) == (False, "enospc")
    assert [name.step for name in root.step_names()] == [1]
    assert save(saver, 3, small).committed
    assert saver.close(LIMIT_S)


def test_a_file_size_limit_costs_only_this_save(tmp_path: Path) -> None:
    """EFBIG in the middle of a shard is reported and leaves nothing behind."""
    script = f"""
import resource, signal, torch
from rampmeter.layout import Root
from rampmeter.saving import Saver
from rampmeter.throttle import Throttle
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({4 * MIB}, {4 * MIB}))
root = Root({str(tmp_path)!r})
saver = Saver(root, root.claim_attempt(), job="test")
throttle = Throttle()
throttle.set_rate(None)
report = saver.begin(1, {{"t": torch.ones({4 * MIB})}}, throttle).result({LIMIT_S})
print(report.reason, report.committed, root.step_names())
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "efbig False []"


def test_memory_threads_and_descriptors_stay_constant(root: Root, make_saver: Any, save: Any) -> None:
    """Twenty saves of 32 MiB cost no more than the first few: buffers are reused and nothing leaks."""
    saver, state = make_saver(), {"t": torch.ones(8 * MIB)}
    used: list[tuple[int, int, int]] = []
    for step in range(20):
        assert save(saver, step, state).committed
        wait_for_their_end()
        used.append((_rss_bytes(), threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))))
    assert used[-1][0] <= used[4][0] + 16 * MIB
    assert used[-1][1:] == used[4][1:]


def _rss_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def test_nothing_committed_means_no_manifest(root: Root, make_saver: Any, make_run: Any) -> None:
    """While the shards are being written there is no manifest to be mistaken for a commit."""
    run, saver = make_run(width=512), make_saver()
    throttle = Throttle()
    throttle.set_rate(2 * MIB)
    future = saver.begin(1, run.state, throttle)
    seen = set()
    while not future.done():
        seen |= {path.name for path in root.path.glob("step-*/*")}
        if MANIFEST_NAME in seen:
            break
    report = future.result(LIMIT_S)
    assert report.committed
    assert report.counters.throttled_s > 0.2
