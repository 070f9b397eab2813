"""Whose copy of a part a rank takes, and what is said where it is not its own."""

from typing import Any

import pytest
import torch
from torch import nn

from rampmeter.belonging import SavedParts, Source, lead_paths, own_copy

MIB = 1024 * 1024


class Holder:
    """An object with the state_dict protocol."""

    def state_dict(self) -> Any:
        return {}

    def load_state_dict(self, state: Any) -> None:
        raise NotImplementedError


class Sampler(Holder):
    """A position in the data, as its class says."""


def _saved(world_size: int, **more: Any) -> SavedParts:
    own = {rank: frozenset({"sched", "loader"}) for rank in range(world_size)}
    fields: dict[str, Any] = {
        "shared": frozenset({"model"}),
        "own": own,
        "rng": frozenset(range(world_size)),
        "world_size": world_size,
    }
    return SavedParts(**fields | more)


@pytest.mark.parametrize(
    ("key", "rank", "expected"),
    [
        ("sched", 1, Source.OWN),
        ("loader", 1, Source.OWN),
        ("model", 1, Source.SHARED),
        ("sched", 2, Source.RANK_0),
        ("loader", 2, Source.NONE),
        ("model", 2, Source.SHARED),
    ],
)
def test_a_rank_takes_its_own_copy_or_that_of_rank_0(key: str, rank: int, expected: Source) -> None:
    """Of a position in the data a rank beyond those that saved takes none."""
    assert _saved(2).source(key, nn.Linear(1, 1) if key == "model" else Holder(), rank) is expected


def test_what_one_process_saved_is_for_all_but_its_position() -> None:
    """It stores nothing by rank: rank 0 takes all, the others all but the position in the data."""
    saved = _saved(1, own={}, shared=frozenset({"sched", "loader"}))
    sources = {
        (key, rank): saved.source(key, Holder(), rank) for key in ("sched", "loader") for rank in (0, 1)
    }
    assert [key for key, source in sources.items() if source is not Source.SHARED] == [("loader", 1)]
    assert sources["loader", 1] is Source.NONE


def test_a_state_has_the_keys_of_rank_0() -> None:
    """A key that only another rank stored for itself is no part of the state."""
    saved = _saved(2, own={0: frozenset({"loader"}), 1: frozenset({"extra"})})
    assert saved.keys == {"model", "loader"}


@pytest.mark.parametrize(
    ("saved", "world_size", "expected"),
    [
        (_saved(2), 2, None),
        (_saved(4), 2, "what ranks 2 to 3 had of the random state, loader, sched is not taken over"),
        (
            _saved(1),
            2,
            "rank 1 keeps the random state of the start; rank 1 keeps the position in the data of the start (loader)",
        ),
        (_saved(3, rng=frozenset({1})), 3, "ranks 0, 2 keep the random state of the start"),
        (_saved(1, rng=frozenset()), 1, "rank 0 keeps the random state of the start"),
    ],
)
def test_what_is_not_taken_over_is_said(saved: SavedParts, world_size: int, expected: str | None) -> None:
    """By part and by rank; nothing where all is as it was."""
    assert (
        saved.loss({"model": nn.Linear(1, 1), "loader": Holder(), "sched": Holder()}, world_size) == expected
    )


@pytest.mark.parametrize(
    ("key", "value", "content", "expected"),
    [
        ("sched", Holder(), {"n": 1}, True),
        ("ema", Holder(), {"w": torch.zeros(MIB // 8)}, True),
        ("ema", Holder(), {"w": torch.zeros(MIB // 4 + 1)}, False),
        ("ema", Holder(), {"b": bytes(2 * MIB)}, False),
        ("x", Sampler(), {"b": bytes(2 * MIB)}, True),
        ("loader", Holder(), [torch.zeros(MIB)], True),
        ("loader", nn.Linear(1, 1), {}, False),
        ("loader", 7, 7, False),
        ("odd", Holder(), {"w": nn.Parameter(torch.zeros(1)).as_subclass(type("Odd", (torch.Tensor,), {}))}, False),
    ],
)  # fmt: skip
def test_small_objects_and_positions_belong_to_a_rank(
    key: str, value: Any, content: Any, expected: bool
) -> None:
    """Modules, optimizers, plain values and what may be spread over ranks never do."""
    assert (own_copy(key, value, content) is not None) == expected


def test_a_large_object_is_not_pickled_to_find_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """That would hold training up for as long as writing it to memory takes."""

    def fails(_key: str, _content: Any) -> bytes:
        raise AssertionError

    monkeypatch.setattr("rampmeter.belonging.freeze", fails)
    assert own_copy("ema", Holder(), {"w": torch.zeros(MIB)}) is None


def test_buffers_and_tensors_of_the_state_itself_have_a_lead() -> None:
    """Parameters and what optimizers hold are equal on all ranks: any of them may write them."""
    model = nn.BatchNorm1d(3)
    optim = torch.optim.SGD(model.parameters(), lr=0.1)
    values = {"a": [torch.zeros(1), {"b": torch.zeros(1)}], "n": 3}
    assert lead_paths("m", model, model.state_dict()) == [
        ("m", "running_mean"),
        ("m", "running_var"),
        ("m", "num_batches_tracked"),
    ]
    assert lead_paths("o", optim, {"state": {"w": {"exp_avg": torch.zeros(1)}}}) == []
    assert lead_paths("v", values, values) == [("v", "a", 0), ("v", "a", 1, "b")]
