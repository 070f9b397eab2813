"""What stands in a writer process for values that only training has: bytes of objects, parts of sharded tensors.

A writer knows neither the classes of the training script nor a device mesh. What training says of a value in their
place is enough to plan and to write it, and the checkpoint is the same. Nothing here decides what is saved.
"""

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType
from torch.distributed.tensor import DTensor

from rampmeter.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Sealed:
    """A value as the bytes that DCP would make of it."""

    content: bytes


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank's part lies in a sharded tensor. By position: there are thousands."""

    whole: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


class Places:
    """Finds the place of each DTensor of a state; one per attempt, since working it out takes longer than copying."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Place | None] = {}

    def of(self, tensor: DTensor) -> Place | None:
        """None if this rank is not among those that hold it. ConfigError if it cannot be said."""
        layout = (tensor.device_mesh, tensor.placements, tensor.shape)
        if layout not in self._known:
            self._known[layout] = _place_of(tensor)
        return self._known[layout]


def _place_of(tensor: DTensor) -> Place | None:
    if tensor.device_mesh.get_coordinate() is None:
        return None
    if any(placement.is_partial() for placement in tensor.placements):
        raise ConfigError("a DTensor with partial placements cannot be shared: reduce it first")
    chunks = tensor.__create_chunk_list__()  # type: ignore[no-untyped-call]
    if len(chunks) != 1:
        raise ConfigError(f"a DTensor with {len(chunks)} local shards cannot be shared")
    return Place(tuple(tensor.shape), tuple(chunks[0].offsets), tuple(chunks[0].sizes))


class ShardPart(torch.Tensor):
    """A rank's part of a sharded tensor, planned and written as that of a DTensor; itself it is empty.

    It has what torch asks of tensors that are spread over ranks, and is a tensor only to be taken for one.
    """

    local: torch.Tensor
    place: Place | None

    @classmethod
    def of(cls, local: torch.Tensor, place: Place | None) -> Self:
        """`local` is what this rank holds; place None = nothing of it is written here."""
        part = torch.empty(0).as_subclass(cls)
        part.local, part.place = local, place
        return part

    def __create_write_items__(self, fqn: str, _object: object) -> list[WriteItem]:
        if self.place is None:
            return []
        offsets, sizes = torch.Size(self.place.offsets), torch.Size(self.place.sizes)
        data = TensorWriteData(
            chunk=ChunkStorageMetadata(offsets=offsets, sizes=sizes),
            properties=TensorProperties.create_from_tensor(self.local),
            size=torch.Size(self.place.whole),
        )
        index = MetadataIndex(fqn, offsets)
        return [WriteItem(index=index, type=WriteItemType.SHARD, tensor_data=data)]

    def __get_tensor_shard__(self, _index: MetadataIndex) -> torch.Tensor:
        return self.local
