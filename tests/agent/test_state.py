"""What a state may hold, and that each kind comes back as it was."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rampmeter.layout import Root
from rampmeter.restore import restore
from rampmeter.state import has_data_position


class Keeper:
    """An object with the state_dict protocol around any value."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def state_dict(self) -> Any:
        return self.value

    def load_state_dict(self, value: Any) -> None:
        self.value = value


VALUES: list[Any] = [
    7,
    1.5,
    "text",
    None,
    True,
    b"bytes",
    [],
    {},
    [1, [2, 3]],
    (1, "two"),
    {"a": {"b": 1}, "c": [1, 2]},
    {1: "int key", "1": "str key"},
    {"empty": {}, "list": []},
    {f"k{i}": i for i in range(200)},
    {"nested": [{"x": 1}, {"y": [{"z": 2}]}]},
    {"set": {1, 2}},
    float("inf"),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_plain_values_come_back(root: Root, make_saver: Any, save: Any, value: Any) -> None:
    """A value directly in the state, and the same one from an object, are equal after a restore."""
    assert save(make_saver(), 1, {"v": value, "k": Keeper(value)}).committed
    state: dict[str, Any] = {"v": "other", "k": Keeper("other")}
    found = restore(root, state)
    assert found is not None
    assert (state["v"], state["k"].value) == (value, value)
    assert type(state["v"]) is type(value)
    assert found.values == {"v": value}


def test_tensors_are_filled_in_place(root: Root, make_saver: Any, save: Any) -> None:
    """Tensors that the user still holds elsewhere get the saved values, also inside dicts."""
    state = {"t": torch.arange(6.0), "d": {"inner": torch.ones(3), "n": 1}}
    assert save(make_saver(), 1, state).committed
    top, inner = torch.zeros(6), torch.zeros(3)
    other: dict[str, Any] = {"t": top, "d": {"inner": inner, "n": 0}}
    assert restore(root, other) is not None
    assert torch.equal(top, torch.arange(6.0))
    assert torch.equal(inner, torch.ones(3))
    assert other["d"]["n"] == 1


def test_objects_with_tensors_and_any_keys(root: Root, make_saver: Any, save: Any) -> None:
    """Nested tensors, tensors under integer keys, and arrays survive."""
    value = {"m": {"w": torch.randn(4)}, "n": np.arange(3), "list": [torch.ones(2), {"b": torch.zeros(1)}]}
    odd = {0: {"exp": torch.randn(3)}, "empty": {}}
    assert save(make_saver(), 1, {"a": Keeper(value), "b": Keeper(odd)}).committed
    state = {"a": Keeper(None), "b": Keeper(None)}
    assert restore(root, state) is not None
    assert torch.equal(state["a"].value["m"]["w"], value["m"]["w"])  # type: ignore[index]
    assert np.array_equal(state["a"].value["n"], value["n"])  # type: ignore[index]
    assert torch.equal(state["a"].value["list"][1]["b"], torch.zeros(1))  # type: ignore[index]
    assert torch.equal(state["b"].value[0]["exp"], odd[0]["exp"])  # type: ignore[index]


def test_an_object_may_change_the_shape_of_its_state(root: Root, make_saver: Any, save: Any) -> None:
    """What an object holds at the restore says nothing about what it held at the save."""
    assert save(make_saver(), 1, {"k": Keeper({"a": torch.ones(3), "b": 2})}).committed
    state = {"k": Keeper({"other": [1, 2, 3]})}
    assert restore(root, state) is not None
    assert set(state["k"].value) == {"a", "b"}


def test_a_callable_state_is_called_only_when_needed(root: Root, make_saver: Any, save: Any) -> None:
    """The callable makes the state once per save and once per restore; its plain values are handed back."""
    calls: list[int] = []
    model = nn.Linear(2, 2)

    def state() -> dict[str, Any]:
        calls.append(1)
        return {"model": model, "epoch": 3}

    saver = make_saver()
    assert calls == []
    assert save(saver, 1, state).committed
    assert len(calls) == 1
    found = restore(root, state)
    assert found is not None
    assert (len(calls), found.values) == (2, {"epoch": 3})


def test_several_modules_and_optimizers(root: Root, make_saver: Any, save: Any) -> None:
    """Each optimizer finds the module(s) whose parameters it steps; frozen and unused parameters have no state."""

    def make(seed: int) -> dict[str, Any]:
        torch.manual_seed(seed)
        gen, critic, unused = nn.Linear(3, 3), nn.Linear(3, 1), nn.Linear(2, 2)
        gen.bias.requires_grad_(False)
        both = torch.optim.AdamW(
            [*gen.parameters(), *critic.parameters(), *unused.parameters()], amsgrad=True
        )
        sgd = torch.optim.SGD(critic.parameters(), lr=0.1, momentum=0.9)
        plain = torch.optim.SGD(gen.parameters(), lr=0.1)
        return {"gen": gen, "critic": critic, "un.used": unused, "both": both, "sgd": sgd, "plain": plain}

    def train(state: dict[str, Any], seed: int) -> float:
        torch.manual_seed(seed)
        loss = torch.zeros(())
        for _ in range(3):
            loss = state["critic"](state["gen"](torch.randn(4, 3))).square().mean()
            for name in ("both", "sgd", "plain"):
                state[name].zero_grad()
            loss.backward()
            for name in ("both", "sgd", "plain"):
                state[name].step()
        return float(loss.detach())

    state = make(0)
    train(state, 1)
    assert save(make_saver(), 1, state).committed
    expected = train(state, 2)
    other = make(5)
    assert restore(root, other) is not None
    assert train(other, 2) == expected
    assert len(other["both"].state) == len(state["both"].state) == 3


def test_parameters_with_gradients_do_not_disturb_a_restore(
    root: Root, make_saver: Any, make_run: Any, save: Any
) -> None:
    """Restoring into an optimizer without state works although gradients are already there."""
    run = make_run()
    run.train(2)
    assert save(make_saver(), 2, run.state).committed
    other = make_run(seed=3)
    other.model(torch.ones(4, 32)).sum().backward()
    assert restore(root, other.state) is not None
    assert len(other.optim.state) == len(run.optim.state)


def test_modules_without_tensors_and_shared_weights(root: Root, make_saver: Any, save: Any) -> None:
    """A module without parameters is no obstacle, tied weights stay tied."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(3, 3, bias=False)
            self.b = nn.Linear(3, 3, bias=False)
            self.b.weight = self.a.weight

    model = Tied()
    assert save(make_saver(), 1, {"act": nn.ReLU(), "model": model}).committed
    other = Tied()
    assert restore(root, {"act": nn.ReLU(), "model": other}) is not None
    assert other.b.weight is other.a.weight
    assert torch.equal(other.a.weight, model.a.weight)


def test_random_state_is_that_of_the_snapshot(root: Root, make_saver: Any, save: Any) -> None:
    """Python, NumPy and torch draw after a restore what they drew after the snapshot."""

    def draw() -> tuple[float, float, float]:
        return random.random(), float(np.random.random()), float(torch.rand(()))

    assert save(make_saver(), 1, {"x": 1}).committed
    expected = draw()
    draw()
    assert restore(root, {"x": 1}) is not None
    assert draw() == expected


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"train_loader": Keeper(1)}, True),
        ({"x": Keeper(1)}, False),
        ({"data": Keeper(1)}, True),
        ({"loader": 5}, False),
        ({"data": nn.Linear(1, 1)}, False),
    ],
)
def test_data_position_is_recognised(state: dict[str, Any], expected: bool) -> None:
    """The manifest says whether some object holds the position in the data."""
    assert has_data_position(state) == expected
