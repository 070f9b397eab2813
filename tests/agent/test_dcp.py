"""The adapter to torch.distributed.checkpoint: plain DCP reads what it writes, and nothing of torch stays changed."""

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as plain
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict

from rampmeter import dcp
from rampmeter.commit import WrittenFile
from rampmeter.core.errors import CommitError, RankFailed
from rampmeter.course import Alone
from rampmeter.hashing import HashedFile
from rampmeter.layout import Root
from rampmeter.manifest import KeyNorm, read_manifest
from rampmeter.stream import MeteredStream
from rampmeter.throttle import Throttle
from rampmeter.verification import Verifier

LIMIT_S = 30.0


class Sink:
    """Keeps what the writer would have committed."""

    def __init__(self) -> None:
        self.written: list[WrittenFile] = []
        self.unchecked: list[str] = []
        self.norms: list[KeyNorm] = []

    def __call__(self, written: Any, unchecked: Any, norms: Any) -> None:
        self.written, self.unchecked, self.norms = list(written), list(unchecked), list(norms)


def _write(path: Path, state: dict[str, Any], sink: Sink, **kwargs: Any) -> None:
    throttle = Throttle()
    throttle.set_rate(None)
    writer = dcp.metered(FileSystemWriter)(path, throttle=throttle, finish=sink, course=Alone(), **kwargs)
    plain.save(state, storage_writer=writer, planner=dcp.CheckedSavePlanner(), no_dist=True)


def test_plain_dcp_loads_exactly_what_was_in_memory(
    root: Root, make_saver: Any, make_run: Any, save: Any
) -> None:
    """Model and optimizer come back bit for bit through torch alone, without this project."""
    run = make_run()
    run.train(3)
    report = save(make_saver(), 3, run.state)
    expected = {
        "model": {key: value.clone() for key, value in get_model_state_dict(run.model).items()},
        "optim": get_optimizer_state_dict(run.model, run.optim),
        "sched": run.sched.state_dict(),
        "sampler": run.sampler.state_dict(),
    }
    other = make_run(seed=99)
    other.train(1)
    found = {
        "model": get_model_state_dict(other.model),
        "optim": get_optimizer_state_dict(other.model, other.optim),
        "sched": other.sched.state_dict(),
        "sampler": other.sampler.state_dict(),
    }
    plain.load(found, checkpoint_id=root.path / report.directory)
    assert _plain(found) == _plain(expected)


def _plain(value: Any) -> Any:
    """The same structure with tensors as exact values."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return (str(value.dtype), value.tolist()) if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("thread_count", [1, 3])
def test_digests_are_those_of_the_files(tmp_path: Path, thread_count: int) -> None:
    """Every file of the checkpoint is listed once with the size and digest of what is on disk."""
    sink = Sink()
    state = {f"t{i}": torch.randn(1000, 100) for i in range(6)} | {"note": "x"}
    _write(tmp_path / "c", state, sink, thread_count=thread_count)
    assert {item.file.name for item in sink.written} == {p.name for p in (tmp_path / "c").iterdir()}
    assert len(sink.written) == thread_count + 1
    for item in sink.written:
        assert item.file.num_bytes == (tmp_path / "c" / item.file.name).stat().st_size


def test_torch_crc_is_off_inside_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The switch is off while our streams are written and as it was afterwards, also after an error."""
    seen: list[bool] = []
    serialize = torch.save

    def spy(*args: Any, **kwargs: Any) -> None:
        seen.append(torch.serialization.get_crc32_options())
        serialize(*args, **kwargs)

    monkeypatch.setattr(torch, "save", spy)
    state = {"t": torch.ones(10)}
    _write(tmp_path / "c", state, Sink())
    assert seen == [False]
    assert torch.serialization.get_crc32_options()
    monkeypatch.setattr(torch, "save", lambda *_: 1 / 0)
    with pytest.raises(CheckpointException):
        _write(tmp_path / "d", state, Sink())
    assert torch.serialization.get_crc32_options()


def test_many_small_tensors_are_metered_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch writes each in forty pieces; what a save pays, hashes and counts one by one goes by its bytes."""
    taken: list[int] = []
    write = MeteredStream.write

    def counted(self: MeteredStream, data: Any) -> int:
        taken.append(len(data))
        return write(self, data)

    monkeypatch.setattr(MeteredStream, "write", counted)
    state = {f"t{number}": torch.full((4,), float(number)) for number in range(300)}
    _write(tmp_path / "c", state, Sink())
    assert len(taken) <= sum(taken) / 65536 + 3
    found = {name: torch.zeros(4) for name in state}
    plain.load(found, checkpoint_id=tmp_path / "c", no_dist=True)
    assert all(torch.equal(found[name], tensor) for name, tensor in state.items())


def test_existing_checkpoints_are_never_overwritten(tmp_path: Path) -> None:
    """A second save into the same directory is refused and leaves the first as it was."""
    _write(tmp_path / "c", {"t": torch.ones(10)}, Sink())
    before = (tmp_path / "c" / "__0_0.distcp").read_bytes()
    with pytest.raises(CheckpointException, match="already exists"):
        _write(tmp_path / "c", {"t": torch.zeros(10)}, Sink())
    assert (tmp_path / "c" / "__0_0.distcp").read_bytes() == before


def test_not_finite_fails_before_the_first_byte(tmp_path: Path) -> None:
    """A NaN in any tensor ends the save while planning: no file was opened."""
    state = {"good": torch.ones(10), "bad": torch.tensor([1.0, float("nan")])}
    with pytest.raises(CheckpointException) as caught:
        _write(tmp_path / "c", state, Sink())
    cause = dcp.cause_of(caught.value)
    assert isinstance(cause, CommitError)
    assert (cause.reason, "bad" in str(cause)) == ("not_finite", True)
    assert not (tmp_path / "c" / "__0_0.distcp").exists()


def test_unchecked_tensors_are_named(tmp_path: Path) -> None:
    """What has no minimum is written and named."""
    sink = Sink()
    _write(tmp_path / "c", {"f8": torch.ones(4).to(torch.float8_e4m3fn), "f32": torch.ones(4)}, sink)
    assert sink.unchecked == ["f8"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("thread_count", [1, 2])
def test_the_first_error_is_the_one_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thread_count: int
) -> None:
    """A full disk surfaces as such, not as what torch.save made of it."""

    def full(_self: object, _chunk: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("rampmeter.stream.MeteredStream._write_chunk", full)
    with pytest.raises(CheckpointException) as caught:
        _write(tmp_path / "c", {"a": torch.ones(10), "b": torch.ones(10)}, Sink(), thread_count=thread_count)
    _join_writing_threads()
    cause = dcp.cause_of(caught.value)
    assert isinstance(cause, OSError)
    assert cause.errno == errno.ENOSPC


def _join_writing_threads() -> None:
    """torch does not wait for its further threads after an error; what they raise belongs to this test."""
    for thread in threading.enumerate():
        if "_write_files_from_queue" in thread.name:
            thread.join(30)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_of_a_further_thread_fails_the_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch does not report what its further writing threads raise; the save must fail all the same."""
    write, finish, main = MeteredStream._write_chunk, MeteredStream.finish, threading.current_thread()
    both_started, main_is_done = threading.Barrier(2), threading.Event()

    def full(self: MeteredStream, chunk: memoryview) -> None:
        if threading.current_thread() is not main:
            both_started.wait(LIMIT_S)
            main_is_done.wait(LIMIT_S)
            raise OSError(errno.ENOSPC, "No space left on device")
        if both_started.n_waiting or not self.tell():
            both_started.wait(LIMIT_S)
        write(self, chunk)

    def done(self: MeteredStream, name: str) -> HashedFile:
        main_is_done.set()
        return finish(self, name)

    monkeypatch.setattr(MeteredStream, "_write_chunk", full)
    monkeypatch.setattr(MeteredStream, "finish", done)
    sink = Sink()
    with pytest.raises(CheckpointException) as caught:
        _write(tmp_path / "c", {"a": torch.ones(1000), "b": torch.ones(1000)}, sink, thread_count=2)
    assert isinstance(dcp.cause_of(caught.value), OSError)
    assert sink.written == []


def test_first_byte_is_announced_once_and_before_any_rate(tmp_path: Path) -> None:
    """An armed save says `ready` with its first byte in hand and what it will write, then waits for its rate."""
    throttle, order = Throttle(), []

    def ready(num_bytes: int) -> None:
        order.append((throttle.counters().done_bytes, num_bytes))
        throttle.set_rate(None)

    sink = Sink()
    writer = dcp.metered(FileSystemWriter)(
        tmp_path / "c", throttle=throttle, finish=sink, course=Alone(), on_first_byte=ready
    )
    state = {"a": torch.ones(1000), "b": torch.ones(500, dtype=torch.float64), "step": 7}
    plain.save(state, storage_writer=writer, no_dist=True)
    assert order == [(0, 8000)]


def test_metadata_is_not_paced_and_synced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The metadata is complete on disk at the time of its sync, although torch syncs before it flushes."""
    sizes: dict[str, int] = {}
    monkeypatch.setattr("os.fsync", _note_sizes(sizes, tmp_path))
    sink = Sink()
    _write(tmp_path / "c", {"a": torch.ones(1000)}, sink)
    metadata = next(item.file for item in sink.written if item.file.name == ".metadata")
    assert sizes[".metadata.tmp"] == metadata.num_bytes


def _note_sizes(sizes: dict[str, int], directory: Path) -> Callable[[int], None]:
    def note(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").resolve()
        if directory in path.parents and path.is_file():
            sizes[path.name] = path.stat().st_size

    return note


def test_the_manifest_lists_what_is_there(root: Root, make_saver: Any, make_run: Any, save: Any) -> None:
    """A committed directory holds exactly the manifest, the block digests and the files that it lists."""
    run = make_run()
    report = save(make_saver(), 1, run.state)
    directory = root.path / report.directory
    manifest = read_manifest(directory)
    listed = {file.name for file in manifest.files} | {"BLOCKS", "MANIFEST.json"}
    assert {path.name for path in directory.iterdir()} == listed
    assert manifest.total_bytes == report.num_bytes
    Verifier(directory, manifest).verify_all()


@pytest.mark.parametrize(
    ("error", "is_ended"),
    [
        (None, False),
        (CheckpointException("gathered by all", {}), False),
        (RankFailed("rank 1 has no snapshot", reason="bad_state"), False),
        (RuntimeError("connection closed by peer"), True),
    ],
    ids=["none", "of a rank, between collectives", "before the first", "of the collective"],
)
def test_only_a_broken_collective_ends_the_group(error: BaseException | None, is_ended: bool) -> None:
    """What a rank did before or between them leaves it whole: the next save need not make another."""
    assert dcp.ends_group(error) is is_ended
