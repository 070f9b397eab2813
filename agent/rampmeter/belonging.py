"""Which parts of the state of a job of several ranks belong to one rank, and whose copy a rank takes at a restore.

Saving:

* DTensors: each rank stores its shards. Parameters and the state of their optimizers: equal on all ranks, stored once.
* Objects with a state_dict that hold no DTensor: each rank stores its own copy if the object is a position in the data
  (seen by its name), or takes at most 1 MiB; schedulers, scalers and generators are among these.
* Larger objects: rank 0's counts. Buffers of modules, and values and tensors that stand in the state itself: of each
  name the copy of the lowest rank that has it. DDP does so with buffers at the next forward pass.

Restoring: a rank takes the copy of the rank of its own number. A rank that the checkpoint does not know takes rank
0's, but of positions in the data and of random states none: it keeps those it started with. What was saved by ranks
that are no more is not taken over. Of tensors in dicts of the state each of several ranks takes those that it has.
Pure decisions: nothing here reads a file or changes a state.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from rampmeter import dcp
from rampmeter.freezing import freeze
from rampmeter.leaves import Path, leaves, tensors_in

DATA_WORDS = ("loader", "sampler", "dataset", "data")
_SMALL_BYTES = 1024 * 1024


class Source(StrEnum):
    """Whose copy of a part a rank takes."""

    SHARED = "shared"  # the one that is stored for all
    OWN = "own"  # of the rank of the same number
    RANK_0 = "rank_0"
    NONE = "none"  # it keeps the one it started with


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedParts:
    """What a checkpoint holds: the keys stored for all, those stored by rank, and the ranks with a random state."""

    shared: frozenset[str]
    own: Mapping[int, frozenset[str]]
    rng: frozenset[int]
    world_size: int

    @property
    def keys(self) -> frozenset[str]:
        """The keys of the state: all ranks have the same, and rank 0 stores them all."""
        return self.shared | self.own.get(0, frozenset())

    def source(self, key: str, value: Any, rank: int) -> Source:
        """Whose copy of the part `value` this rank takes; it is one of `keys`."""
        if key in self.own.get(rank, ()):
            return Source.OWN
        if is_data_position(key, value) and rank >= self.world_size:
            return Source.NONE
        return Source.SHARED if key in self.shared else Source.RANK_0

    def loss(self, parts: Mapping[str, Any], world_size: int) -> str | None:
        """What a restore of these parts by so many ranks cannot give back, in one sentence without its end."""
        said = [
            self._not_taken(range(world_size, self.world_size)),
            self._without_rng(range(world_size)),
            self._without_position(parts, range(self.world_size, world_size)),
        ]
        return "; ".join(filter(None, said)) or None

    def _not_taken(self, ranks: range) -> str | None:
        lost = sorted({key for rank in ranks for key in self.own.get(rank, ())})
        if not ranks:
            return None
        return f"what {_named(ranks)} had of {', '.join(['the random state', *lost])} is not taken over"

    def _without_rng(self, ranks: Iterable[int]) -> str | None:
        lacking = [rank for rank in ranks if rank not in self.rng]
        return f"{_named(lacking)} {_keep(lacking)} the random state of the start" if lacking else None

    def _without_position(self, parts: Mapping[str, Any], ranks: range) -> str | None:
        lost = [
            key for key, value in parts.items() if any(self._keeps(key, value, rank) for rank in ranks[:1])
        ]
        if not lost:
            return None
        return f"{_named(ranks)} {_keep(ranks)} the position in the data of the start ({', '.join(lost)})"

    def _keeps(self, key: str, value: Any, rank: int) -> bool:
        return self.source(key, value, rank) is Source.NONE


def is_data_position(key: str, value: Any) -> bool:
    """Whether this looks like the position in the data: a Stateful loader, sampler or dataset by name."""
    return (
        isinstance(value, dcp.Stateful)
        and not isinstance(value, nn.Module | Optimizer)
        and any(word in f"{key} {type(value).__name__}".lower() for word in DATA_WORDS)
    )


def own_copy(key: str, value: Any, content: Any) -> bytes | None:
    """The content of a part that belongs to a rank, as bytes; None if it does not."""
    if not isinstance(value, dcp.Stateful) or isinstance(value, nn.Module | Optimizer):
        return None
    tensors = list(tensors_in(content))
    if not all(map(dcp.is_plain, tensors)):
        return None
    is_position = is_data_position(key, value)
    if not is_position and sum(tensor.nbytes for tensor in tensors) > _SMALL_BYTES:
        return None
    copy = freeze(key, content)
    return copy if is_position or len(copy) <= _SMALL_BYTES else None


def is_split(value: Any, content: Any) -> bool:
    """Whether more than rank 0 stores something of a part that belongs to no rank."""
    is_object = isinstance(value, dcp.Stateful) and not isinstance(value, nn.Module | Optimizer)
    return not is_object or not all(map(dcp.is_plain, tensors_in(content)))


def lead_paths(key: str, value: Any, content: Any) -> list[Path]:
    """The tensors of this part of which the copy of the lowest rank counts, by their path in the state dict."""
    if isinstance(value, Optimizer):
        return []
    shared_out = set()
    if isinstance(value, nn.Module):
        shared_out = {_place(parameter) for parameter in value.parameters() if dcp.is_plain(parameter)}
    return [
        (key, *path)
        for path, value in leaves(content)
        if isinstance(value, torch.Tensor) and dcp.is_plain(value) and _place(value) not in shared_out
    ]


def _place(tensor: torch.Tensor) -> int:
    """Where its memory begins: the same for a tensor and its detached alias."""
    return tensor.untyped_storage().data_ptr()


def _named(ranks: Iterable[int]) -> str:
    numbers = list(ranks)
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"ranks {numbers[0]} to {numbers[-1]}"
    return f"ranks {', '.join(map(str, numbers))}"


def _keep(ranks: Iterable[int]) -> str:
    return "keeps" if len(list(ranks)) == 1 else "keep"
