"""Digests that cannot be computed here: nothing is called damaged, nothing is deleted, and the way on is named."""

import dataclasses
from typing import Any

import pytest
import torch

from rampmeter.core.errors import CannotVerify, FormatTooNew
from rampmeter.layout import Root, StepName
from rampmeter.manifest import read_manifest
from rampmeter.marks import Mark, has_mark, put_mark
from rampmeter.restore import restore
from rampmeter.retention import Keep, prune
from support.roots import change_manifest, nothing, put_commit, steps_in


def _rehash(root: Root, name: StepName, algorithm: str) -> None:
    """Its manifest names another algorithm: of a newer version, or of nobody."""
    files = read_manifest(root.directory(name)).files
    change_manifest(root, name, files=tuple(dataclasses.replace(file, algorithm=algorithm) for file in files))


@pytest.fixture
def two(root: Root, make_saver: Any, save: Any) -> list[StepName]:
    """Steps 1 and 2; the newest first."""
    saver = make_saver()
    for step in (1, 2):
        assert save(saver, step, {"t": torch.full((2,), float(step))}).committed
    return root.committed_steps()


def _loaded(root: Root, **which: Any) -> tuple[float, tuple[str, ...]]:
    state = {"t": torch.zeros(2)}
    found = restore(root, state, **which)
    assert found is not None
    return state["t"].tolist()[0], found.skipped


def test_an_unknown_algorithm_is_skipped_with_the_reason(root: Root, two: list[StepName]) -> None:
    """The one before is taken; by its step it is refused in the same words; its proof stays."""
    put_mark(root.directory(two[0]), Mark.PROVEN)
    _rehash(root, two[0], "blake9")
    value, (why,) = _loaded(root)
    assert value == 1.0
    assert "'blake9', which this rampmeter does not know: upgrade rampmeter" in why
    with pytest.raises(CannotVerify, match=rf"step 2 \({root.path}/.*'blake9'.*upgrade.*checkpoints ls"):
        _loaded(root, step=2)
    assert has_mark(root.directory(two[0]), Mark.PROVEN)


def test_training_never_starts_from_nothing_beside_what_cannot_be_verified(
    root: Root, two: list[StepName], monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them can be judged: that ends the restore, and says for each what to upgrade or install."""
    _rehash(root, two[0], "blake9")
    monkeypatch.setattr("rampmeter.hashing.xxhash", None)
    with pytest.raises(CannotVerify, match=r"step 2 .*upgrade rampmeter.*step 1 .*pip install xxhash"):
        _loaded(root)


def test_a_newer_format_names_the_root_and_the_step(root: Root, two: list[StepName]) -> None:
    """It ends the restore, since a newer version has gone on from here; an older step can be chosen."""
    change_manifest(root, two[0], format=2)
    with pytest.raises(FormatTooNew, match=rf"step 2 \({root.path}/.*format 2.*use a newer rampmeter"):
        _loaded(root)
    assert _loaded(root, step=1) == (1.0, ())


def test_retention_deletes_nothing_that_it_cannot_judge(root: Root) -> None:
    """It does not take the place of one that can be verified either."""
    names = [put_commit(root, step) for step in (1, 2, 3, 4)]
    for name in (names[0], names[3]):
        _rehash(root, name, "blake9")
    assert prune(root, Keep(keep=1, keep_days=0), nothing) == [names[1]]
    assert steps_in(root) == [4, 3, 1]
