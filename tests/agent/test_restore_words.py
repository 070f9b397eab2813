"""Whatever ends a restore: the error names the root, the step where there is one, and a way on."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from rampmeter.core.errors import RestoreError
from rampmeter.layout import MANIFEST_NAME, Root
from rampmeter.restore import restore
from rampmeter.verification import Verifier
from support.roots import change_manifest, flip


class Picky(nn.Module):
    """Refuses what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))

    def load_state_dict(self, *_args: Any, **_more: Any) -> Any:
        raise ValueError("not today")


@pytest.fixture
def saved(root: Root, make_saver: Any, save: Any) -> Root:
    """Step 42 alone."""
    state = {"t": torch.ones(2), "model": Picky(), "n": 1}
    assert save(make_saver(), 42, state).committed
    return root


def _state(**changes: Any) -> dict[str, Any]:
    state = {"t": torch.zeros(2), "model": Picky(), "n": 0} | changes
    return {key: value for key, value in state.items() if value is not None}


@pytest.mark.parametrize("step", [None, 42])
@pytest.mark.parametrize(
    ("changes", "way_on"),
    [
        ({"more": 1}, "give it the names"),
        ({"t": None}, "give it the names"),
        ({"n": torch.zeros(1)}, "put there what was"),
        ({"t": torch.zeros(3)}, "make it of the shape"),
        ({"t": torch.zeros(2).half()}, "make it torch.float32"),
        ({}, "not today.*make the state anew"),
    ],
    ids=["more", "less", "kind", "shape", "dtype", "refused"],
)
def test_a_state_that_does_not_fit(saved: Root, step: int | None, changes: Any, way_on: str) -> None:
    """With the step that was tried, whether it was chosen by name or not."""
    with pytest.raises(RestoreError, match=rf"step 42 \({saved.path}/step-00000042.* cannot be .*{way_on}"):
        restore(saved, _state(**changes), step=step)


def _cut_off(root: Root) -> None:
    (root.directory(root.step_names()[0]) / "__0_0.distcp").write_bytes(b"")


def _flipped(root: Root) -> None:
    flip(root.directory(root.step_names()[0]) / "__0_0.distcp")


def _no_manifest(root: Root) -> None:
    (root.directory(root.step_names()[0]) / MANIFEST_NAME).write_bytes(b"{")


@pytest.mark.parametrize("damage", [_cut_off, _flipped, _no_manifest])
def test_a_damaged_one(saved: Root, damage: Callable[[Root], None]) -> None:
    """By name, with where to see the others; and where it was the only one, with what to do then."""
    damage(saved)
    with pytest.raises(
        RestoreError, match=rf"step 42 \({saved.path}/.*(distcp|JSON).*checkpoints ls {saved.path}"
    ):
        restore(saved, _state(), step=42)
    with pytest.raises(
        RestoreError, match=rf"in {saved.path} can be loaded: .*step 42 .*begin anew in another root"
    ):
        restore(saved, _state())


def test_one_that_cannot_be_read(saved: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """The word of the system with the file, beside the step."""

    def broken(_self: Verifier) -> None:
        raise OSError(5, "Input/output error", "__0_0.distcp")

    monkeypatch.setattr(Verifier, "verify_sizes", broken)
    with pytest.raises(
        RestoreError, match=rf"step 42 \({saved.path}/.*Input/output error: '__0_0.*checkpoints ls"
    ):
        restore(saved, _state(), step=42)


def test_a_step_that_is_not_there(saved: Root) -> None:
    """With where to see those that are."""
    with pytest.raises(
        RestoreError, match=rf"step 7 in {saved.path}; `rampmeter checkpoints ls {saved.path}`"
    ):
        restore(saved, _state(), step=7)


def test_a_newer_format(saved: Root) -> None:
    """With what to upgrade."""
    change_manifest(saved, saved.step_names()[0], format=2)
    with pytest.raises(RestoreError, match=rf"step 42 \({saved.path}/.*use a newer rampmeter"):
        restore(saved, _state())


def test_a_root_that_cannot_be_looked_into(saved: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no start from nothing, and it may come back."""

    def gone(_self: Root) -> None:
        raise OSError(116, "Stale file handle", str(saved.path))

    monkeypatch.setattr(Root, "step_names", gone)
    with pytest.raises(RestoreError, match=rf"in {saved.path}: .*Stale file handle.*start again when"):
        restore(saved, _state())
