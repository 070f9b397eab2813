"""Puts a verified checkpoint back into the user's state, on all ranks of a job together.

Names, shapes and dtypes are compared first, on every rank. Then the blocks that any rank is about to read are
verified, each by one rank. Only then is anything read: what needs fresh memory (all but modules), which is
found to fit or refused (`fitting`), and last modules in place. So the user's objects are untouched until the whole
checkpoint was found to fit everywhere. The ranks agree after each of these, and no collective of torch's own
runs in between.
"""

import itertools
import logging
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from rampmeter import dcp
from rampmeter.belonging import SavedParts, Source
from rampmeter.blocks import BlockMap, loads, share_out
from rampmeter.core.errors import LeaseLost, RestoreError
from rampmeter.fitting import check_content, check_item, check_optimizer
from rampmeter.freezing import thaw
from rampmeter.layout import METADATA_NAME
from rampmeter.leaves import Path
from rampmeter.ranks.peers import Peers
from rampmeter.rng import apply_rng, check_rng
from rampmeter.state import State, as_metadata_paths, assign, has_tensors, owner_of, resolve
from rampmeter.statekeys import FROZEN, OWN, RESERVED, RNG, rank_key, rank_of
from rampmeter.targets import (
    Paths,
    check_keys,
    dtensor_at,
    live_content,
    target_of,
    template,
    tensor_at,
)

_log = logging.getLogger("rampmeter")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """`values` are the state's plain values; `is_whole` says whether all bytes of the checkpoint were verified."""

    values: dict[str, Any]
    is_whole: bool


def load_state(state: State, reader: dcp.VerifiedReader, peers: Peers) -> Loaded:
    """Fill `state`, on all ranks of `peers`, which call this together.

    CorruptCheckpoint or RestoreError, the same on all ranks, if bytes, names or shapes do not fit on any of them; then
    nothing was touched.
    """
    load = peers.agree(lambda: _Load(state, reader, peers))
    is_whole = _verify(reader, load.bitmap, peers)
    peers.agree(load.read_fresh)
    peers.agree(load.in_place.read)
    values = peers.agree(load.hand_over)
    if peers.rank == 0:
        load.tell_loss()
    return Loaded(values=values, is_whole=is_whole)


def _verify(reader: dcp.VerifiedReader, bitmap: bytes, peers: Peers) -> bool:
    """Each block that a rank needs, by one of the ranks that do; whether that was all of the checkpoint."""
    blocks = BlockMap(reader.manifest)
    owners = share_out(peers.gather(bitmap), blocks.sizes_bytes)
    mine = blocks.named(np.flatnonzero(owners == peers.rank).tolist())

    def verify() -> None:
        try:
            reader.verifier.verify_blocks(mine, is_pointless=lambda: peers.has_failed)
        except LeaseLost:
            if not peers.has_failed:
                raise

    with reader.pace.among(loads(owners, blocks.sizes_bytes, peers.world_size)) as rider:
        peers.agree(verify, rider)
    not_needed = blocks.named(np.flatnonzero(owners < 0).tolist())
    return not_needed.keys() <= {METADATA_NAME}  # which each rank has verified for itself


class _Load:
    """What one rank will read, and where it goes. Made without reading more than the metadata."""

    def __init__(self, state: State, reader: dcp.VerifiedReader, peers: Peers) -> None:
        self._manifest = reader.manifest
        self._peers = peers
        self._parts = parts = resolve(state)
        metadata = reader.read_metadata()
        paths = as_metadata_paths(metadata)
        self._saved = saved = _saved_parts(paths, self._manifest.world_size)
        check_keys(parts, set(saved.keys))
        self._sources = {key: saved.source(key, value, peers.rank) for key, value in parts.items()}
        for key, value in parts.items():
            if isinstance(value, torch.Tensor):
                check_item(key, paths.get((key,)), value)
            elif _is_dict(value):
                _check_dict(key, value, paths)
        self._targets = {
            key: target_of(key, value, parts, paths)
            for key, value in parts.items()
            if isinstance(value, nn.Module | Optimizer) and (RESERVED, FROZEN, key) not in paths
        }
        self._contents: dict[str, Any] = {}
        self._random_state: bytes | None = None
        modules = {key: target for key, target in self._targets.items() if isinstance(parts[key], nn.Module)}
        optimizers = {key: target for key, target in self._targets.items() if key not in modules}
        self._fresh = self._fresh_target(paths) | optimizers
        self.fresh = dcp.PlannedLoad(self._fresh, reader, metadata)
        self.in_place = dcp.PlannedLoad(modules, reader, metadata)
        self.bitmap = self._bitmap(reader)

    def _bitmap(self, reader: dcp.VerifiedReader) -> bytes:
        fresh, in_place = self.fresh.ranges, self.in_place.ranges
        ranges = {name: fresh.get(name, []) + in_place.get(name, []) for name in fresh | in_place}
        return BlockMap(self._manifest).bitmap(reader.verifier.touched(ranges))

    def _fresh_target(self, paths: Paths) -> dict[str, Any]:
        wanted = {
            path: item for path, item in paths.items() if self._wants(path) and self._has_place(path, item)
        }
        live = {
            key: live_content(value) for key, value in self._parts.items() if self._needs_live(key, wanted)
        }
        return template(wanted, like=lambda path: dtensor_at(live, path))

    def _wants(self, path: Path) -> bool:
        """Whether this is read into fresh memory here."""
        if path[0] != RESERVED:
            return path[0] not in self._targets and self._sources[path[0]] is Source.SHARED
        if path[1] == RNG:
            return bool(path[2] == rank_key(self._peers.rank))
        if path[1] == FROZEN:
            return self._sources[path[2]] is Source.SHARED
        if path[1] == OWN:
            return bool(path[2] == self._own_key(path[3]))
        return True

    def _has_place(self, path: Path, item: Any) -> bool:
        """Of tensors in a dict of the state a rank takes those that it has: the others may be of other ranks."""
        value = self._parts.get(path[0])
        if (
            self._peers.world_size == 1
            or not _is_dict(value)
            or not isinstance(item, dcp.TensorStorageMetadata)
        ):
            return True
        return tensor_at(value, path[1:]) is not None

    def _own_key(self, key: str) -> str | None:
        """The rank whose own copy of this part is read here, as its key."""
        ranks = {Source.OWN: self._peers.rank, Source.RANK_0: 0}
        rank = ranks.get(self._sources.get(key, Source.NONE))
        return None if rank is None else rank_key(rank)

    def _needs_live(self, key: str, wanted: Paths) -> bool:
        """An object's state is only asked for where it may hold DTensors: to be asked may change it."""
        is_object = isinstance(self._parts.get(key), dcp.Stateful)
        return (self._peers.world_size > 1 or not is_object) and any(
            path[0] == key and isinstance(item, dcp.TensorStorageMetadata) for path, item in wanted.items()
        )

    def read_fresh(self) -> None:
        """Read all but the modules, and see that each part can take what was saved for it: nothing is touched."""
        self.fresh.read()
        own = self._fresh.pop(RESERVED, {})  # an adopted checkpoint has none
        mine = own.get(OWN, {}).values()
        frozen = itertools.chain(own.get(FROZEN, {}).items(), *(copies.items() for copies in mine))
        self._contents = self._fresh | {key: thaw(content) for key, content in frozen}
        self._random_state = own.get(RNG, {}).get(rank_key(self._peers.rank))
        for key, value in self._given().items():
            if key in self._contents:
                _check_one(key, value, self._contents[key])
        if self._random_state is not None:
            check_rng(self._random_state)

    def _given(self) -> dict[str, Any]:
        return {key: value for key, value in self._parts.items() if self._sources[key] is not Source.NONE}

    def hand_over(self) -> dict[str, Any]:
        """Give each object what was read for it. An error names the part; those before it are already loaded."""
        contents = self._targets | self._contents
        for key, value in self._given().items():
            try:
                _apply_one(key, value, self._parts, contents[key])
            except Exception as error:
                raise RestoreError(
                    f"state[{key!r}] refused what was saved for it: {error}; parts before it are loaded already, so "
                    "make the state anew before another try"
                ) from error
        if self._random_state is not None:
            apply_rng(self._random_state)
        return _assign_plain(self._parts, contents, keeps_tensors=self._peers.world_size > 1)

    def tell_loss(self) -> None:
        """Say once, for all ranks, what is not as it was at the save."""
        loss = self._saved.loss(self._parts, self._peers.world_size)
        if loss is not None:
            _log.warning(
                "step %d was saved by %s and is loaded by %d: tensors are equal; %s",
                self._manifest.step,
                _ranks(self._manifest.world_size),
                self._peers.world_size,
                loss,
            )


def _ranks(count: int) -> str:
    return f"{count} rank" if count == 1 else f"{count} ranks"


def _saved_parts(paths: Paths, world_size: int) -> SavedParts:
    own: dict[int, set[str]] = {}
    for path in paths:
        if path[:2] == (RESERVED, OWN):
            own.setdefault(rank_of(path[2]), set()).add(path[3])
    return SavedParts(
        shared=frozenset(
            {path[0] for path in paths} - {RESERVED}
            | {path[2] for path in paths if path[:2] == (RESERVED, FROZEN)}
        ),
        own={rank: frozenset(keys) for rank, keys in own.items()},
        rng=frozenset(rank_of(path[2]) for path in paths if path[:2] == (RESERVED, RNG)),
        world_size=world_size,
    )


def _is_dict(value: Any) -> bool:
    """A dict that stands in the state itself."""
    return isinstance(value, Mapping) and not isinstance(value, dcp.Stateful)


def _check_dict(key: str, value: Mapping[str, Any], paths: Paths) -> None:
    """Tensors in a dict, where the checkpoint has tensors in their place."""
    for path, item in paths.items():
        live = tensor_at(value, path[1:]) if path[0] == key else None
        filled = not any(
            isinstance(name, int) for name in path
        )  # what stands in a list is replaced as a whole
        if live is not None and filled and isinstance(item, dcp.TensorStorageMetadata):
            check_item(".".join(path), item, live)


def _check_one(key: str, value: Any, content: Any) -> None:
    if isinstance(value, nn.Module):
        if has_tensors(value):
            check_content(key, content, dcp.get_model_state_dict(value))
    elif isinstance(value, Optimizer):
        check_optimizer(key, content, value)
    elif not isinstance(value, dcp.Stateful):
        check_content(key, content, value)


def _apply_one(key: str, value: Any, parts: Mapping[str, Any], content: Any) -> None:
    if isinstance(value, nn.Module) and has_tensors(value):
        dcp.set_model_state_dict(value, content)
    elif isinstance(value, Optimizer) and content["state"] and _by_name(content["state"]):
        # Parameters that never had a gradient have no state, which is no error.
        options = dcp.StateDictOptions(strict=False)
        dcp.set_optimizer_state_dict(owner_of(key, value, parts), value, content, options=options)
    elif isinstance(value, nn.Module | Optimizer | dcp.Stateful):
        value.load_state_dict(content)


def _by_name(optimizer_state: Mapping[Any, Any]) -> bool:
    return all(isinstance(key, str) for key in optimizer_state)


def _assign_plain(
    parts: Mapping[str, Any], contents: Mapping[str, Any], *, keeps_tensors: bool
) -> dict[str, Any]:
    values = {}
    for key, value in parts.items():
        if isinstance(value, nn.Module | Optimizer | dcp.Stateful):
            continue
        values[key] = assign(value, contents[key], keeps_tensors=keeps_tensors)
        if isinstance(parts, MutableMapping):
            parts[key] = values[key]
    return values
