"""What does not fit is refused before anything is touched, and what is restored is bit for bit what was saved."""

import pickle
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from rampmeter import state as state_module
from rampmeter.core.errors import RestoreError
from rampmeter.layout import Root
from rampmeter.restore import restore
from rampmeter.rng import capture_rng

COMPLEX = torch.tensor([1 + 2j, 3 - 4j])


@pytest.mark.parametrize(
    ("view", "values"),
    [
        (COMPLEX.conj(), [1 - 2j, 3 + 4j]),
        (COMPLEX.conj().imag, [-2.0, 4.0]),
        (torch._neg_view(torch.tensor([1.0, 2.0])), [-1.0, -2.0]),  # type: ignore[no-untyped-call]
    ],
    ids=["conj", "imag", "neg"],
)
@pytest.mark.parametrize("into_view", [False, True])
def test_a_view_that_is_only_marked_comes_back_with_its_values(
    root: Root, make_saver: Any, save: Any, view: torch.Tensor, values: list[Any], into_view: bool
) -> None:
    """Conjugated and negated views are saved as their values, and such a view can be filled, too."""
    assert save(make_saver(), 1, {"t": view}).committed
    target = torch.zeros_like(COMPLEX).conj() if view.is_complex() else torch.zeros(2)
    if into_view and not view.is_complex():
        target = torch._neg_view(target)  # type: ignore[no-untyped-call]
    elif not into_view:
        target = target.resolve_conj()
    assert restore(root, {"t": target}) is not None
    assert target.tolist() == values


def _linear(dtype: torch.dtype = torch.float32) -> nn.Linear:
    return nn.Linear(2, 2).to(dtype)


@pytest.mark.parametrize(
    ("saved", "target", "message"),
    [
        (lambda: _linear(torch.float64), _linear, r"t\.weight is torch.float64 in .* torch.float32 here"),
        (lambda: torch.ones(2), lambda: torch.zeros(2, dtype=torch.uint8), "t is torch.float32 in"),
        (lambda: {"a": torch.ones(2)}, lambda: {"a": torch.zeros(2).half()}, r"t\.a is torch.float32 in"),
        (lambda: {"a": torch.ones(1)}, lambda: {"a": torch.zeros(4)}, r"t\.a has shape \[1\] in .* \[4\]"),
        (lambda: {1: torch.ones(1)}, lambda: {1: torch.zeros(4)}, r"t\.1 has shape \[1\] in .* \[4\]"),
        (lambda: torch.ones(3), lambda: torch.zeros(1).expand(3), r"t cannot be filled.*clone\(\)"),
        (_linear, lambda: nn.Linear(2, 2, device="meta"), r"t\.weight is on the meta device.*to_empty"),
    ],
    ids=["module", "tensor", "nested", "broadcast", "frozen", "expanded", "meta"],
)
def test_what_is_not_of_the_saved_kind_is_refused(
    root: Root,
    make_saver: Any,
    save: Any,
    saved: Callable[[], Any],
    target: Callable[[], Any],
    message: str,
) -> None:
    """Nothing is converted or broadcast; the part is named, and the module beside it keeps every bit."""
    assert save(make_saver(), 1, {"model": _linear(), "t": saved()}).committed
    model = _linear()
    before = model.weight.clone()
    with pytest.raises(RestoreError, match=message):
        restore(root, {"model": model, "t": target()})
    assert torch.equal(model.weight, before)


def test_what_no_restore_could_fill_is_not_saved(root: Root, make_saver: Any, save: Any) -> None:
    """An expanded tensor is refused at the save."""
    report = save(make_saver(), 1, {"t": torch.zeros(1, 4).expand(3, 4)})
    assert (report.committed, report.reason) == (False, "bad_state")


def test_a_random_state_that_does_not_fit_is_refused(
    root: Root, make_saver: Any, save: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of another size: module, values and Python's random state stay as they were."""
    parts = pickle.loads(capture_rng())
    short = pickle.dumps(parts | {"torch": parts["torch"][:100]})
    monkeypatch.setattr(state_module, "capture_rng", lambda: short)
    assert save(make_saver(), 1, {"model": _linear(), "v": 1}).committed
    state = {"model": _linear(), "v": 0}
    before, drawn = state["model"].weight.clone(), random.getstate()  # type: ignore[attr-defined]
    with pytest.raises(RestoreError, match="random state"):
        restore(root, state)
    assert torch.equal(state["model"].weight, before)  # type: ignore[attr-defined]
    assert (state["v"], random.getstate()) == (0, drawn)


@pytest.mark.parametrize("saved", [{"best": 1.0}, {1: "a"}, {"in": {"a": 1, "t": torch.ones(1)}}, {}])
def test_keys_that_came_after_the_save_are_gone(
    root: Root, make_saver: Any, save: Any, saved: dict[Any, Any]
) -> None:
    """Going back in the same process gives the dict of the save, in the same object."""
    history = dict(saved)
    assert save(make_saver(), 1, {"history": history}).committed
    history["later"] = 2.0
    assert restore(root, {"history": history}) is not None
    assert history == saved


def _optimizer(kind: str) -> tuple[nn.Linear, torch.optim.Optimizer]:
    model = _linear()
    two = [{"params": [model.weight]}, {"params": [model.bias], "lr": 0.5}]
    if kind == "adamw":
        return model, torch.optim.AdamW(model.parameters(), lr=0.1)
    groups = {"one": model.parameters(), "two": two, "half": [model.weight]}[kind]
    return model, torch.optim.SGD(groups, lr=0.1, momentum=0.9)


@pytest.mark.parametrize(
    ("saved", "here", "message"),
    [
        ("two", "one", "2 parameter groups in the checkpoint and 1 here"),
        ("one", "adamw", "without betas, eps, which AdamW needs"),
        ("one", "half", "2 parameters in the checkpoint and 1 here"),
    ],
)
@pytest.mark.parametrize("steps", [0, 1])
def test_an_optimizer_of_other_groups_or_another_kind_is_refused(
    root: Root, make_saver: Any, save: Any, saved: str, here: str, message: str, steps: int
) -> None:
    """With and without state: the model is untouched, and the optimizer still steps with its own settings."""
    model, optimizer = _optimizer(saved)
    for _ in range(steps):
        model(torch.ones(2)).sum().backward()
        optimizer.step()
    assert save(make_saver(), 1, {"model": model, "optim": optimizer}).committed
    model, optimizer = _optimizer(here)
    before = model.weight.clone()
    with pytest.raises(RestoreError, match=message):
        restore(root, {"model": model, "optim": optimizer})
    assert torch.equal(model.weight, before)
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    assert optimizer.param_groups[0]["lr"] == 0.1
