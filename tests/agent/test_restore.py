"""Restore: the newest whole checkpoint, bit for bit, or a clear word why not."""

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rampmeter.core.errors import CorruptCheckpoint, ForeignCheckpoints, FormatTooNew, RestoreError
from rampmeter.layout import MANIFEST_NAME, Claim, Root
from rampmeter.manifest import Manifest, read_manifest
from rampmeter.marks import Mark, has_mark
from rampmeter.restore import RestoredCheckpoint, restore
from rampmeter.saving import Saver


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x20
    path.write_bytes(content)


def _directory(root: Root, step: int) -> Path:
    return next(root.directory(name) for name in root.step_names() if name.step == step)


@pytest.fixture
def two(root: Root, make_saver: Any, make_run: Any, save: Any) -> Callable[[], Any]:
    """A root with committed steps 3 and 6; returns a fresh run to restore into."""
    run, saver = make_run(), make_saver()
    for step in (3, 6):
        run.train(3)
        assert save(saver, step, run.state).committed
    return lambda: make_run(seed=99)


def test_an_older_step_that_is_chosen_by_name_rolls_back(root: Root, two: Any) -> None:
    """Step 3 although 6 is there; 6 itself, or whatever is newest, does not."""
    rolled_back = {step: restore(root, two().state, step=step).rolled_back for step in (3, 6, None)}
    assert rolled_back == {3: True, 6: False, None: False}


def test_falling_back_past_a_damaged_checkpoint_is_no_choice(root: Root, two: Any) -> None:
    """Nobody wanted the older step: its steps are lost, not discarded."""
    os.truncate(_directory(root, 6) / ".metadata", 0)
    found = restore(root, two().state)
    assert (found.step, found.rolled_back) == (3, False)


def test_a_newer_attempt_that_went_back_is_what_a_choice_is_measured_against(
    root: Root, two: Any, make_saver: Any, make_run: Any, save: Any
) -> None:
    """Attempt 2 goes on from step 3 and saves step 4: from there step 6 of attempt 1 is ahead, not back."""
    assert save(make_saver(), 4, make_run().state).committed
    rolled_back = {step: restore(root, two().state, step=step).rolled_back for step in (3, 4, 6)}
    assert rolled_back == {3: True, 4: False, 6: False}


def test_what_was_never_committed_is_nothing_to_go_back_from(root: Root, two: Any) -> None:
    """Step 6 lost its manifest: step 3 is the newest."""
    (_directory(root, 6) / MANIFEST_NAME).unlink()
    found = restore(root, two().state, step=3)
    assert (found.step, found.rolled_back) == (3, False)


@pytest.mark.parametrize("num_before", [0, 1, 5])
def test_resume_is_bit_exact(root: Root, make_saver: Any, make_run: Any, save: Any, num_before: int) -> None:
    """A resumed run has exactly the losses of the uninterrupted one, also from before the optimizer's first step."""
    straight = make_run()
    straight.train(num_before + 8)
    first = make_run()
    first.train(num_before)
    assert save(make_saver(), num_before, first.state).committed
    resumed = make_run(seed=1234)
    resumed.train(3)
    found = restore(root, resumed.state)
    assert found is not None
    assert found.step == num_before
    resumed.losses.clear()
    resumed.train(8)
    assert resumed.losses == straight.losses[num_before:]


@pytest.mark.parametrize("name", ["__0_0.distcp", ".metadata", "BLOCKS", MANIFEST_NAME])
@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "delete"])
def test_damage_is_refused_by_name_and_the_commit_before_taken(
    root: Root, two: Any, caplog: pytest.LogCaptureFixture, name: str, damage: str
) -> None:
    """Whatever happens to a file of the newest checkpoint, the one before is restored and the reason names the file."""
    path = _directory(root, 6) / name
    {
        "flip": lambda: _flip(path),
        "truncate": lambda: os.truncate(path, path.stat().st_size - 1),
        "empty": lambda: os.truncate(path, 0),
        "delete": path.unlink,
    }[damage]()
    run = two()
    with caplog.at_level(logging.WARNING, "rampmeter"):
        found = restore(root, run.state)
    assert isinstance(found, RestoredCheckpoint)
    assert (found.step, run.sampler.position) == (3, 3)
    expected = "never committed" if (name, damage) == (MANIFEST_NAME, "delete") else name
    assert len(found.skipped) == 1
    assert expected in found.skipped[0]
    assert "skipped step 6" in caplog.text


def test_nothing_is_touched_unless_all_is_whole(root: Root, two: Any) -> None:
    """If every checkpoint is damaged the state keeps every bit, and the error names both."""
    for step in (3, 6):
        _flip(_directory(root, step) / "__0_0.distcp")
    run = two()
    run.train(1)
    before = {key: value.clone() for key, value in run.model.state_dict().items()}
    losses_before = _next_losses(run)
    with pytest.raises(CorruptCheckpoint, match=r"step 6.*step 3"):
        restore(root, run.state)
    torch.testing.assert_close(dict(run.model.state_dict()), before, rtol=0, atol=0)
    assert (run.sampler.position, _next_losses(run)) == (1, losses_before)


def _next_losses(run: Any) -> float:
    """A number that depends on model and optimizer without changing either."""
    run.model.eval()
    with torch.no_grad():
        loss = float(run.model(torch.ones(2, run.width)).sum())
    run.model.train()
    moments = sum(float(state["exp_avg"].sum()) for state in run.optim.state.values())
    return loss + moments


def test_an_optimizer_without_state_stays_without_after_a_refusal(root: Root, two: Any) -> None:
    """A refused restore does not make optimizer state, which would change training from scratch."""
    for step in (3, 6):
        _flip(_directory(root, step) / "__0_0.distcp")
    run = two()
    with pytest.raises(CorruptCheckpoint):
        restore(root, run.state)
    assert not run.optim.state


def test_a_mixture_of_leftovers(root: Root, two: Any) -> None:
    """Complete, uncommitted, short and empty directories together: the newest whole one is found, skips explained."""
    os.truncate(
        _directory(root, 6) / "__0_0.distcp", (_directory(root, 6) / "__0_0.distcp").stat().st_size - 1
    )
    for step, empty in ((7, False), (8, True)):
        leftover = root.path / f"step-{step:08d}.a00001.00000000"
        leftover.mkdir()
        if not empty:
            shutil.copy(_directory(root, 3) / "__0_0.distcp", leftover)
    (root.path / "step-700.tmp").mkdir()
    found = restore(root, two().state)
    assert found is not None
    assert found.step == 3
    assert [reason.split(" (")[0] for reason in found.skipped] == [
        "skipped step 8",
        "skipped step 7",
        "skipped step 6",
    ]
    assert "1 byte short" in found.skipped[2]


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that every user can reach, which `tmp_path` is not."""
    before = os.umask(0o022)
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    yield directory
    os.umask(before)
    shutil.rmtree(directory)


@contextmanager
def _without_privileges() -> Iterator[None]:
    """Root may read everything: be nobody meanwhile. All that is to be imported must have been imported before."""
    privileged = os.geteuid() == 0
    if privileged:
        os.seteuid(65534)
    try:
        yield
    finally:
        if privileged:
            os.seteuid(0)


@pytest.mark.parametrize("closed", ["shard", "directory", "root"])
def test_not_permitted_is_never_nothing(open_directory: Path, make_run: Any, save: Any, closed: str) -> None:
    """A closed shard or directory falls back; a closed root is an error, not a start at step 0."""
    root, run = Root(open_directory / "root"), make_run()
    saver = Saver(root, root.claim_attempt(), job="test")
    for step in (1, 2):
        assert save(saver, step, run.state).committed
    assert restore(root, run.state) is not None
    newest = _directory(root, 2)
    target = {"shard": newest / "__0_0.distcp", "directory": newest, "root": root.path}[closed]
    mode = target.stat().st_mode
    target.chmod(0)
    try:
        with _without_privileges():
            _restore_what_is_open(root, run.state, closed)
    finally:
        target.chmod(mode)


def _restore_what_is_open(root: Root, state: Any, closed: str) -> None:
    if closed == "root":
        with pytest.raises(RestoreError, match="Permission denied"):
            restore(root, state)
    else:
        found = restore(root, state)
        assert found is not None
        assert (found.step, "Permission denied" in found.skipped[0]) == (1, True)


@pytest.mark.parametrize("kind", ["missing", "empty", "bookkeeping", "leftovers"])
def test_a_first_start_finds_nothing(root: Root, make_run: Any, kind: str) -> None:
    """On the very first start there is nothing to resume, and that is no error."""
    if kind != "missing":
        root.path.mkdir()
    if kind in {"bookkeeping", "leftovers"}:
        root.ensure_job_uid()
        root.claim_attempt()
    if kind == "leftovers":
        (root.path / "step-00000005.a00001.00000000").mkdir()
    assert restore(root.path, make_run().state) is None


def test_order_is_attempt_then_step(root: Root, make_saver: Any, make_run: Any, save: Any) -> None:
    """A later attempt that went back to an earlier step is the future; numbers are compared as numbers."""
    run, first = make_run(), make_saver()
    for step in (9900, 10_000, 10_100):
        assert save(first, step, run.state).committed
    found = restore(root, run.state)
    assert found is not None
    assert found.step == 10_100
    second = make_saver()
    assert save(second, 9950, run.state).committed
    assert save(first, 10_200, run.state).reason == "superseded"
    found = restore(root, run.state)
    assert found is not None
    assert found.step == 9950


def test_an_explicit_step_is_never_replaced(root: Root, two: Any) -> None:
    """The asked-for step is loaded, or refused with the reason; another one never stands in."""
    run = two()
    found = restore(root, run.state, step=3)
    assert found is not None
    assert (found.step, run.sampler.position) == (3, 3)
    with pytest.raises(RestoreError, match="step 5"):
        restore(root, run.state, step=5)
    _flip(_directory(root, 6) / "__0_0.distcp")
    with pytest.raises(CorruptCheckpoint, match=r"step 6.*__0_0\.distcp"):
        restore(root, run.state, step=6)
    assert run.sampler.position == 3


def test_the_pointer_decides_nothing(root: Root, two: Any) -> None:
    """A stale, damaged or missing pointer changes nothing."""
    for content in (str(_directory(root, 3).name).encode(), b"garbage", None):
        (root.path / "LATEST").unlink(missing_ok=True)
        if content is not None:
            (root.path / "LATEST").write_bytes(content)
        found = restore(root, two().state)
        assert found is not None
        assert found.step == 6


def test_foreign_checkpoints_are_refused_with_advice(root: Root, two: Any) -> None:
    """Checkpoints of another writer are neither ignored nor loaded; the way out is named."""
    (root.path / "checkpoint-500").mkdir()
    with pytest.raises(
        ForeignCheckpoints, match=r"checkpoint-500.*checkpoints adopt.*load one yourself.*fresh=True"
    ):
        restore(root, two().state)
    found = restore(root, two().state, fresh=True)
    assert found is not None
    assert found.step == 6


def test_what_was_restored_is_proven(root: Root, two: Any) -> None:
    """Read whole and fits: retention keeps it until a newer one is proven. Damaged: proven no longer."""
    restore(root, two().state)
    assert has_mark(_directory(root, 6), Mark.PROVEN)
    _flip(_directory(root, 6) / "__0_0.distcp")
    restore(root, two().state)
    assert has_mark(_directory(root, 3), Mark.PROVEN)
    assert not has_mark(_directory(root, 6), Mark.PROVEN)


def test_a_newer_format_stops_the_restore(root: Root, two: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint of a newer major format is not skipped in favour of an older step."""
    manifest = read_manifest(_directory(root, 6))
    parts = {field: getattr(manifest, field) for field in Manifest.__dataclass_fields__} | {"format": 2}
    (_directory(root, 6) / MANIFEST_NAME).write_bytes(Manifest(**parts).to_json())
    with pytest.raises(FormatTooNew, match="format 2"):
        restore(root, two().state)


def test_a_manifest_of_another_directory_is_refused(root: Root, two: Any) -> None:
    """A directory that was renamed or copied by hand is not what its name says."""
    shutil.copytree(_directory(root, 3), root.path / "step-00000009.a00001.00000000")
    found = restore(root, two().state)
    assert found is not None
    assert found.step == 6
    assert "belongs to" in found.skipped[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.update(ema=torch.ones(2)), "not in the checkpoint: ema"),
        (lambda s: s.pop("sampler"), "only in the checkpoint: sampler"),
        (lambda s: s.update(model=nn.Sequential(nn.Linear(32, 32))), r"only in the checkpoint: 1\.bias"),
        (lambda s: s["model"].append(nn.Linear(4, 4)), r"not in the checkpoint: 4\.bias"),
        (lambda s: s.update(sampler=torch.ones(5)), "sampler has shape None in the checkpoint"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_by_name(
    root: Root, two: Any, change: Any, message: str
) -> None:
    """Missing and unexpected parts are named, nothing is loaded, and no older checkpoint is tried instead."""
    run = two()
    state = dict(run.state)
    change(state)
    before = run.model[0].weight.clone()
    with pytest.raises(RestoreError, match=message):
        restore(root, state)
    assert torch.equal(run.model[0].weight, before)
    assert run.sampler.position == 0


def test_a_module_of_another_shape_is_refused(root: Root, two: Any, make_run: Any) -> None:
    """Both shapes are named."""
    with pytest.raises(
        RestoreError, match=r"model\.0\.weight has shape \[32, 32\] in the checkpoint and \[16, 16\] here"
    ):
        restore(root, make_run(width=16).state)


def test_another_world_size_is_logged(root: Root, two: Any, caplog: pytest.LogCaptureFixture) -> None:
    """What a different number of ranks means is said."""
    manifest = read_manifest(_directory(root, 6))
    parts = {field: getattr(manifest, field) for field in Manifest.__dataclass_fields__} | {"world_size": 4}
    (_directory(root, 6) / MANIFEST_NAME).write_bytes(Manifest(**parts).to_json())
    assert restore(root, two().state) is not None
    assert "saved by 4 ranks" in caplog.text


def test_a_copied_claim_is_enough_to_read(root: Root, two: Any) -> None:
    """Reading needs no claim: a root without its attempts restores."""
    shutil.rmtree(root.path / "attempts")
    found = restore(root, two().state)
    assert found is not None
    assert isinstance(root.claim_attempt(), Claim)
