"""How many bytes a state has, from its tensors alone: the cold-start figure before a save has told."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from rampmeter.state import State, resolve


def tensor_bytes(state: State) -> int:
    """Bytes of all tensors in the state; an optimizer that has not stepped yet has none."""
    return sum(t.numel() * t.element_size() for value in resolve(state).values() for t in _tensors(value))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, nn.Module):
        yield from (item for item in value.state_dict().values() if isinstance(item, torch.Tensor))
    elif isinstance(value, Optimizer):
        for slots in value.state.values():
            yield from (item for item in slots.values() if isinstance(item, torch.Tensor))
