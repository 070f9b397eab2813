"""Bytes of a state: of the checkpoint, and of this rank's copy in memory."""

from pathlib import Path

import torch
from torch import nn

from rampmeter.sizing import staged_bytes, tensor_bytes
from support.rank_programs import Ranks


def test_a_process_that_is_alone_stages_what_it_saves() -> None:
    """Modules with their buffers, optimizers that have stepped, tensors; nothing else."""
    model = nn.BatchNorm1d(10)
    optim = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    state = {"model": model, "optim": optim, "t": torch.zeros(7, dtype=torch.int16), "n": 5}
    assert tensor_bytes(state) == staged_bytes(state) == 4 * 40 + 8 + 14
    model(torch.ones(2, 10)).sum().backward()
    optim.step()
    assert tensor_bytes(state) == staged_bytes(state) == 6 * 40 + 8 + 14


def test_tensors_count_wherever_they_stand() -> None:
    """In dicts, lists and tuples of any depth, as they are saved."""
    state = {"own": {"a": torch.zeros(10), "deep": [{"b": torch.zeros(5)}, (torch.zeros(2), "x")]}, "n": 5}
    assert tensor_bytes(state) == staged_bytes(state) == 40 + 20 + 8


def test_views_and_shared_memory_cost_what_is_copied() -> None:
    """A view is saved as what it shows, and staged with all that is behind it, once."""
    whole = torch.zeros(1000)
    state = {"a": whole[:10], "b": whole[10:30]}
    assert tensor_bytes(state) == 120
    assert staged_bytes(state) == 4000


def test_a_rank_stages_its_shards(ranks: Ranks, tmp_path: Path) -> None:
    """The checkpoint is of the same size on both, the copy half of it."""
    program = """
from rampmeter.sizing import staged_bytes, tensor_bytes
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
model = nn.Linear(100, 64, bias=False)
fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
answer = [tensor_bytes({"model": model}), staged_bytes({"model": model})]
"""
    assert ranks.answers(2, tmp_path, program) == [[25600, 12800]] * 2
