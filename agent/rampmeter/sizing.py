"""How many bytes a state has, from its tensors alone: the cold-start figures before a save has told."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from rampmeter import dcp
from rampmeter.leaves import tensors_in
from rampmeter.savable import asking, flaw_of
from rampmeter.state import State, resolve


def tensor_bytes(state: State) -> int:
    """Bytes of all tensors in the checkpoint of the whole job; an optimizer that has not stepped yet has none."""
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(state))


def staged_bytes(state: State) -> int:
    """Bytes of memory that this rank needs for its copy of the state.

    Of a DTensor that is its shard; of a view the whole memory behind it, and of memory that several tensors share no
    more than once: so does torch's stager.
    """
    storages = (dcp.local_part(tensor).untyped_storage() for tensor in _tensors(state))
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def _tensors(state: State) -> Iterator[torch.Tensor]:
    """Those that no checkpoint can hold are left out: the first save says so."""
    for key, value in resolve(state).items():
        with asking(key, value):
            yield from (tensor for tensor in _tensors_of(value) if flaw_of(tensor) is None)


def _tensors_of(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, nn.Module):
        return tensors_in(value.state_dict())
    return tensors_in(value.state if isinstance(value, Optimizer) else value)
