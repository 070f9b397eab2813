"""The memory that holds a snapshot where two processes see it: one piece, kept for all saves, without a name.

Training copies its tensors in, storage by storage; the writer sees the same tensors as views, at no further copy and
with one descriptor however many there are. Being memory without a name it does not count against /dev/shm, which is
64 MiB in a container unless somebody asked for more, and nothing of it stays behind a process that was killed.
"""

import itertools
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from rampmeter import dcp
from rampmeter.core.clock import Clock
from rampmeter.core.errors import ConfigError
from rampmeter.daemon.records import new_memory
from rampmeter.leaves import tensors_in
from rampmeter.savable import blaming, flaw_of

_ALIGNED_BYTES = 64
_INSTEAD = "tensors with plain memory of their own can"
_versions = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor in the arena: `offset` in elements from the arena's start. By position: there are thousands."""

    dtype: torch.dtype
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A tensor that is made of others."""

    kind: type
    inner: dict[str, Any]
    context: Any
    size: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sharded:
    """A DTensor: what this rank holds of it and where that belongs; without the mesh, which the writer has not."""

    local: Any
    place: dcp.Place | None


class Arena:
    """Training's side. `stage` overwrites what the last one put there: one save at a time."""

    def __init__(self, clock: Clock) -> None:
        self.descriptor: int | None = None
        self.num_bytes = 0
        self.version = 0
        """Of the memory, unique in this process: a writer that has another one must be handed this one."""
        self.last_stage_s = 0.0
        self._clock = clock
        self._bytes: torch.Tensor | None = None
        self._places = dcp.Places()

    def why_not(self, state: Mapping[str, Any]) -> str | None:
        """What in a snapshot cannot stand here; None if all can."""
        if all(dcp.is_plain(tensor) and flaw_of(tensor) is None for tensor in tensors_in(state)):
            return None  # without a layout, which costs as much as the staging that follows
        try:
            self._layout(state)
        except ConfigError as error:
            return str(error)
        return None

    def _layout(self, state: Mapping[str, Any]) -> "tuple[_Layout, dict[str, Any]]":
        """Where everything goes. ConfigError names what cannot stand here."""
        layout = _Layout(self._places)
        alone = _Layout(self._places)
        with blaming(state, alone.place, cannot_be="shared with a process that writes", instead=_INSTEAD):
            return layout, {key: layout.place(value) for key, value in state.items()}

    def stage(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The same structure with `Placed` for each tensor, all of which are copied when this returns.

        ConfigError for a tensor that cannot be shared; OSError if there is not enough memory.
        """
        begun_s = self._clock.now()
        layout, placed = self._layout(state)
        self._make_room(layout.num_bytes)
        assert self._bytes is not None
        for begin, content in layout.to_copy:
            self._bytes[begin : begin + len(content)].copy_(content)
        self.last_stage_s = self._clock.now() - begun_s
        return placed

    def here(self, placed: dict[str, Any]) -> dict[str, Any]:
        """What was staged, for a thread of this process: it looks into the same memory."""
        assert self._bytes is not None
        found: dict[str, Any] = unpacked(placed, self._bytes)
        return found

    def _make_room(self, num_bytes: int) -> None:
        if self._bytes is not None and num_bytes <= self.num_bytes:
            return
        self.close()
        num_bytes = max(num_bytes, mmap.PAGESIZE)
        descriptor = new_memory()
        try:
            os.posix_fallocate(
                descriptor, 0, num_bytes
            )  # taken now: later its lack would be a killed process
            self._bytes = mapped(descriptor, num_bytes)
        except BaseException:
            os.close(descriptor)
            raise
        self.descriptor, self.num_bytes = descriptor, num_bytes
        self.version = next(_versions)

    def close(self) -> None:
        """Give the memory back, once the writer has, too."""
        self._bytes = None
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


class _Layout:
    """Where each storage goes. The order is that of the state, so that the next save puts it where this one did."""

    def __init__(self, places: dcp.Places) -> None:
        self.num_bytes = 0
        self._places = places
        self.to_copy: list[tuple[int, torch.Tensor]] = []
        self._begins: dict[tuple[int, int, torch.device], int] = {}

    def place(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._place_tensor(value)
        if isinstance(value, Mapping):
            return {key: self.place(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.place(item) for item in value]
        return value  # a tuple, too: what is in there is no item of its own, and was copied at the snapshot

    def _place_tensor(self, tensor: torch.Tensor) -> Placed | Wrapped | Sharded:
        if isinstance(tensor, dcp.DTensor):
            with torch.no_grad():  # a view for autograd would take ten times as long
                local = tensor.to_local()
            return Sharded(self.place(local), self._places.of(tensor))
        if hasattr(type(tensor), "__tensor_flatten__"):
            names, context = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
            inner = {name: self.place(getattr(tensor, name)) for name in names}
            return Wrapped(type(tensor), inner, context, tuple(tensor.size()), tensor.stride())
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
            raise ConfigError(
                f"a {tensor.dtype} tensor of layout {tensor.layout} on {tensor.device} cannot be shared"
            )
        tensor = tensor.detach().resolve_conj().resolve_neg()
        begin = self._begin_of(tensor)
        offset = begin // tensor.element_size() + int(tensor.storage_offset())
        return Placed(tensor.dtype, offset, tuple(tensor.size()), tensor.stride())

    def _begin_of(self, tensor: torch.Tensor) -> int:
        """Where the tensor's storage begins; tensors that share one in training share one here."""
        storage = tensor.untyped_storage()
        key = (storage.data_ptr(), storage.nbytes(), storage.device)
        if key not in self._begins:
            self._begins[key] = self.num_bytes
            if storage.nbytes():
                content = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
                self.to_copy.append((self.num_bytes, content))
                self.num_bytes += -(-storage.nbytes() // _ALIGNED_BYTES) * _ALIGNED_BYTES
        return self._begins[key]


def mapped(descriptor: int, num_bytes: int) -> torch.Tensor:
    """The memory behind a descriptor as bytes. It stays mapped for as long as a tensor looks into it."""
    return torch.frombuffer(mmap.mmap(descriptor, num_bytes), dtype=torch.uint8)


def unpacked(placed: Any, arena: torch.Tensor) -> Any:
    """What `stage` was given, with tensors that look into the arena."""
    if isinstance(placed, Placed):
        return _window(placed, arena)
    if isinstance(placed, Sharded):
        return dcp.ShardPart.of(unpacked(placed.local, arena), placed.place)
    if isinstance(placed, Wrapped):
        inner = {name: unpacked(part, arena) for name, part in placed.inner.items()}
        return placed.kind.__tensor_unflatten__(inner, placed.context, placed.size, placed.stride)  # type: ignore[attr-defined]
    if isinstance(placed, dict):
        return {key: unpacked(item, arena) for key, item in placed.items()}
    if isinstance(placed, list):
        return [unpacked(item, arena) for item in placed]
    return placed


def _window(placed: Placed, arena: torch.Tensor) -> torch.Tensor:
    """The tensor, with a storage that ends where it ends: torch copies what has more behind it before it writes it."""
    empty = torch.empty(0, dtype=placed.dtype)
    reach = (
        0
        if 0 in placed.size
        else 1 + sum((n - 1) * step for n, step in zip(placed.size, placed.stride, strict=True))
    )
    begin = placed.offset * empty.element_size()
    storage = arena.untyped_storage()[begin : begin + reach * empty.element_size()]
    return empty.set_(storage, 0, placed.size, placed.stride)


def num_tensors(value: Any) -> int:
    """How many tensors a snapshot holds."""
    if isinstance(value, torch.Tensor):
        return 1
    if isinstance(value, Mapping):
        return sum(num_tensors(item) for item in value.values())
    return sum(num_tensors(item) for item in value) if isinstance(value, list) else 0


def host_bytes(state: Mapping[str, Any]) -> int:
    """The bytes of a snapshot's tensors on this rank; 0 if one of them is not plain memory of the host."""
    total = 0
    for tensor in tensors_in(state):
        here = dcp.local_part(tensor)
        if not dcp.is_plain(here) or here.device.type != "cpu" or flaw_of(here) is not None:
            return 0
        total += here.nbytes
    return total
