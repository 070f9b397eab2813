"""Writers that are not torch's own for files: what goes through `FsspecWriter` is paced, hashed and committed alike."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as plain
from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader, FsspecWriter

from rampmeter.daemon.mode import Mode
from rampmeter.layout import Root
from rampmeter.manifest import read_manifest
from rampmeter.marks import Mark, has_mark
from rampmeter.restore import restore
from rampmeter.verification import Verifier

MIB = 1024 * 1024
RATE = 8 * MIB
NUM_BYTES = 6 * MIB


def state(step: int) -> dict[str, Any]:
    return {"table": torch.arange(NUM_BYTES // 8) + step, "note": f"of step {step}"}


@pytest.fixture(autouse=True)
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all files that fsspec's file system has opened for writing in this process."""
    names: list[str] = []
    files = type(FsspecWriter("/").fs)
    create = files.create_stream

    def noting(self: Any, path: Any, mode: str) -> Any:
        if mode == "wb":
            names.append(Path(path).name)
        return create(self, path, mode)

    monkeypatch.setattr(files, "create_stream", noting)
    return names


@pytest.mark.parametrize("mode", [Mode.THREAD, Mode.PROCESS])
def test_fsspec_is_paced_and_hashed_as_any_other_writer(
    root: Root, make_saver: Any, save: Any, mode: Mode, opened: list[str]
) -> None:
    """Written at the lease's rate, every file with its digests, read back whole; plain fsspec reads it, too."""
    report = save(make_saver(writer_class=FsspecWriter, mode=mode), 3, state(3), bytes_per_s=RATE)
    assert (report.committed, report.reason) == (True, None)
    assert mode is Mode.PROCESS or opened == ["__0_0.distcp", ".metadata.tmp"]
    assert report.write_s >= 0.9 * NUM_BYTES / RATE
    assert report.counters.done_bytes >= NUM_BYTES

    directory = root.path / report.directory
    manifest = read_manifest(directory)
    assert manifest.total_bytes == report.num_bytes
    assert {file.name for file in manifest.files} == {"__0_0.distcp", ".metadata"}
    Verifier(directory, manifest).verify_all()

    found = state(0)
    restored = restore(root, found)
    assert restored is not None
    assert torch.equal(found["table"], state(3)["table"])
    assert (found["note"], has_mark(directory, Mark.PROVEN)) == ("of step 3", True)

    table = torch.zeros_like(found["table"])
    plain.load({"table": table}, storage_reader=FsspecReader(str(directory)), no_dist=True)
    assert torch.equal(table, state(3)["table"])


def test_a_byte_that_changes_behind_fsspec_is_found(root: Root, make_saver: Any, save: Any) -> None:
    """The digests are those of the bytes that went through it."""
    saver = make_saver(writer_class=FsspecWriter)
    assert save(saver, 1, state(1)).committed
    report = save(saver, 2, state(2))
    shard = root.path / report.directory / "__0_0.distcp"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    found = state(0)
    restored = restore(root, found)
    assert restored is not None
    assert restored.step == 1
    assert torch.equal(found["table"], state(1)["table"])
