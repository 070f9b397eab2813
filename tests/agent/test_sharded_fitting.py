"""Shards of DTensors: their values whatever they are marked with, and no shard of another kind is ever filled."""

from pathlib import Path

import pytest

from support.rank_programs import Ranks

SHARDED = """
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

MESH = init_device_mesh("cpu", (world_size,))
VALUES = torch.tensor([1 + 2j, 3 - 4j, 5 + 6j, 7 - 8j])

def sharded(whole):
    return distribute_tensor(whole, MESH, [Shard(0)])

def of_this_rank(whole):
    "Without a word between the ranks: they may differ."
    return DTensor.from_local(whole.chunk(world_size)[rank].clone(), MESH, [Shard(0)], run_check=False)

def marked(whole):
    "Its conjugate, by a mark on the memory of each shard."
    return DTensor.from_local(sharded(whole).to_local().conj(), MESH, [Shard(0)], run_check=False)
"""


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_shards_that_are_only_marked_are_saved_and_filled_by_value(
    ranks: Ranks, tmp_path: Path, mode: str
) -> None:
    """Two ranks save conjugated shards; they come back the same in plain shards and in conjugated ones."""
    saving = """
state = {"w": marked(VALUES)}
assert state["w"].to_local().is_conj()
save_once(root, 1, state, mode)
"""
    loading = """
answer = []
for into in (sharded(torch.zeros_like(VALUES)), marked(torch.zeros_like(VALUES))):
    restore(root, {"w": into}, group=group)
    local = into.to_local()
    answer.append(torch.equal(local.resolve_conj(), sharded(VALUES.conj().resolve_conj()).to_local()))
"""
    ranks.answers(2, tmp_path, SHARDED + saving, mode=mode)
    assert ranks.answers(2, tmp_path, SHARDED + loading) == [[True, True]] * 2


def test_shards_of_another_kind_are_refused_on_all_ranks(ranks: Ranks, tmp_path: Path) -> None:
    """In the state and in a dict: one error for both ranks, also if only one of them differs, and nothing is filled."""
    saving = """
weights = {"direct": sharded(torch.arange(4.0)), "dict": {"w": sharded(torch.arange(4.0))}}
commit_together(root, 1, {"model": torch.nn.Linear(2, 2), **weights}, group)
"""
    loading = """
good = torch.zeros(4)
others = [torch.zeros(4, dtype=torch.float64), torch.zeros(8), good if rank else torch.zeros(4).half()]
answer = []
for key in ("direct", "dict"):
    for other in others:
        weights = {"direct": of_this_rank(good), "dict": {"w": of_this_rank(good)}}
        if key == "dict":
            weights["dict"]["w"] = of_this_rank(other)
        else:
            weights["direct"] = of_this_rank(other)
        model = torch.nn.Linear(2, 2)
        before = [parameter.detach().clone() for parameter in model.parameters()]
        try:
            restore(root, {"model": model, **weights}, group=group)
        except Exception as error:
            answer.append([type(error).__name__, str(error).partition("loaded: ")[2]])
        assert all(map(torch.equal, before, model.parameters()))
        assert not any(weights["direct"].to_local()) and not any(weights["dict"]["w"].to_local())
"""
    ranks.answers(2, tmp_path, SHARDED + saving)
    mine, others = ranks.answers(2, tmp_path, SHARDED + loading)
    assert mine == others
    assert [kind for kind, _ in mine] == ["RestoreError"] * 6
    for name, (dtype, shape, of_one_rank) in (("direct", mine[:3]), ("dict.w", mine[3:])):
        assert dtype[1].startswith(f"tensor {name} is torch.float32 in the checkpoint and torch.float64 here")
        assert shape[1].startswith(f"tensor {name} has shape [4] in the checkpoint and [8] here")
        assert of_one_rank[1].startswith(
            f"tensor {name} is torch.float32 in the checkpoint and torch.float16"
        )
        assert of_one_rank[1].endswith("(rank 0)")
