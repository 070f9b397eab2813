"""Turns the user's `state` into one DCP state dict.

A state is a dict of modules, optimizers, Stateful objects, tensors and plain values, or a callable that returns one.
Tensors stay references (the stager copies them); everything else is copied here and now, so that nothing that training
does later can tear the snapshot. What belongs to which rank is decided in `belonging`. This module never writes into
the user's objects; `loading` does.
"""

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, TypeAlias, cast

import torch
from torch import nn
from torch.optim import Optimizer

from rampmeter import dcp
from rampmeter.belonging import is_data_position, is_split, lead_paths, own_copy
from rampmeter.core.errors import ConfigError
from rampmeter.fitting import FOLDED, is_folded
from rampmeter.freezing import freeze
from rampmeter.leaves import Path, tensors_in
from rampmeter.rng import capture_rng
from rampmeter.savable import asking, blaming, refuse_flaws, walking
from rampmeter.statekeys import FROZEN, LEAD, OWN, RESERVED, RNG, rank_key

State: TypeAlias = Mapping[str, Any] | Callable[[], Mapping[str, Any]]

_MAX_PLAIN_LEAVES = 64  # each leaf is an item of its own in the checkpoint


def resolve(state: State) -> Mapping[str, Any]:
    """The dict itself, or what the callable returns. ConfigError if that is no dict of named parts."""
    parts = _called(state) if callable(state) else state
    if not isinstance(parts, Mapping):
        raise ConfigError(f"state must be a dict or return one, not {type(parts).__name__}")
    for key in parts:
        if not isinstance(key, str) or not key or key == RESERVED:
            raise ConfigError(
                f"state has the key {key!r}: keys are non-empty strings other than {RESERVED!r}"
            )
    return parts


def _called(state: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    try:
        return state()
    except Exception as error:
        raise ConfigError(f"the function given as state failed: {type(error).__name__}: {error}") from error


def snapshot(state: State, *, step: int, rank: int = 0, world_size: int = 1) -> dict[str, Any]:
    """One state dict for DCP: live tensors and copied values. ConfigError names the part that cannot be saved.

    Of `world_size` ranks each stores what `belonging` says.
    """
    assert rank < world_size, f"rank {rank} of {world_size}"
    parts = resolve(state)
    taken = _Taken(rank=rank, world_size=world_size)
    for key, value in parts.items():
        with asking(key, value):
            content = content_of(key, value, parts)
        with walking(key):
            taken.take(key, value, content)
    return {**taken.result, RESERVED: _own_parts(step, rank, taken.frozen, taken.own, taken.lead)}


class _Taken:
    """What is taken of one part after the other."""

    def __init__(self, *, rank: int, world_size: int) -> None:
        self.result: dict[str, Any] = {}
        self.frozen: dict[str, bytes] = {}
        self.own: dict[str, bytes] = {}
        self.lead: list[Path] = []
        self._is_first = rank == 0
        self._is_alone = world_size == 1

    def take(self, key: str, value: Any, content: Any) -> None:
        """Take one part of the state."""
        _refuse_folded(key, value, content)
        copied = None if self._is_alone else own_copy(key, value, content)
        if copied is not None:
            self.own[key] = copied
        elif _survives_flattening(content):
            self._take_flat(key, value, content)
        else:
            _refuse_sharded(key, content)
            if self._is_first:
                self.frozen[key] = freeze(key, content)

    def _take_flat(self, key: str, value: Any, content: Any) -> None:
        refuse_flaws(key, content)
        if self._is_first or is_split(value, content):
            with blaming(content, copy.deepcopy, cannot_be="copied", at=key):
                self.result[key] = _copy_values(content)
        if not self._is_alone:
            self.lead += lead_paths(key, value, content)


def _own_parts(
    step: int, rank: int, frozen: dict[str, bytes], own: dict[str, bytes], lead: list[Path]
) -> dict[str, Any]:
    parts: dict[str, Any] = {RNG: {rank_key(rank): capture_rng()}}
    if own:
        parts[OWN] = {rank_key(rank): own}
    if rank == 0:
        parts |= {"step": step, FROZEN: frozen}
    if lead:
        parts[LEAD] = lead
    return parts


def _refuse_sharded(key: str, content: Any) -> None:
    if any(isinstance(tensor, dcp.DTensor) for tensor in tensors_in(content)):
        raise ConfigError(
            f"state[{key!r}] holds sharded tensors beside empty dicts or under keys that are not strings: "
            "give each of them a string as its key"
        )


def _refuse_folded(key: str, value: Any, content: Any) -> None:
    """What is restored in place must be something that can be written into. Other objects take care of themselves."""
    if isinstance(value, dcp.Stateful) and not isinstance(value, nn.Module):
        return
    refuse_flaws(key, content, _fold_of)


def _fold_of(tensor: torch.Tensor) -> str | None:
    return (
        f"of shape {list(tensor.shape)} could be filled by no restore: {FOLDED}"
        if is_folded(tensor)
        else None
    )


def has_data_position(state: Mapping[str, Any]) -> bool:
    """Whether some part looks like the position in the data."""
    return any(is_data_position(key, value) for key, value in state.items())


def content_of(key: str, value: Any, parts: Mapping[str, Any]) -> Any:
    """What is saved for one part of the state."""
    if isinstance(value, nn.Module):
        return dcp.get_model_state_dict(value) if has_tensors(value) else value.state_dict()
    if isinstance(value, Optimizer):
        # Asking DCP for the state of an optimizer that has none would make one, and training would go on from it.
        return (
            dcp.get_optimizer_state_dict(owner_of(key, value, parts), value)
            if value.state
            else value.state_dict()
        )
    if isinstance(value, dcp.Stateful):
        return value.state_dict()
    return value


def has_tensors(module: nn.Module) -> bool:
    """DCP refuses modules with an empty state dict."""
    return any(True for _ in itertools.chain(module.parameters(), module.buffers()))


def owner_of(key: str, optimizer: Optimizer, parts: Mapping[str, Any]) -> nn.Module:
    """The module whose parameters the optimizer steps; several of them come back as one with their keys as prefixes."""
    wanted = {id(p) for group in optimizer.param_groups for p in group["params"]}
    owners: dict[str, nn.Module] = {}
    for name, module in _modules(parts):
        owned = {id(p) for p in module.parameters()} & wanted
        if owned:
            owners[name] = module
            wanted -= owned
    if wanted:
        raise ConfigError(f"state[{key!r}] steps {len(wanted)} parameters that no module of the state holds")
    if len(owners) == 1:
        return next(iter(owners.values()))
    together = nn.Module()
    for name, module in owners.items():
        together.add_module(name.replace(".", "_"), module)
    return together


def _modules(parts: Mapping[str, Any]) -> Iterator[tuple[str, nn.Module]]:
    return ((key, value) for key, value in parts.items() if isinstance(value, nn.Module))


def _survives_flattening(content: Any) -> bool:
    """Whether DCP, which flattens dicts into one item per leaf, gives this back as it was."""
    leaves = list(_leaves(content))
    if any(leaf is _LOST for leaf in leaves):
        return False
    num_tensors = sum(isinstance(leaf, torch.Tensor) for leaf in leaves)
    return num_tensors > 0 or len(leaves) <= _MAX_PLAIN_LEAVES


_LOST = object()


def _leaves(content: Any) -> Iterator[Any]:
    """All leaves as DCP sees them; `_LOST` for an empty dict and for keys that are not strings."""
    if isinstance(content, Mapping):
        if not content or not all(isinstance(key, str) for key in content):
            yield _LOST
        for value in content.values():
            yield from _leaves(value)
    elif isinstance(content, list) and _has_containers(content):
        for value in content:
            yield from _leaves(value)
    else:
        yield content


def _has_containers(values: list[Any]) -> bool:
    return any(isinstance(value, Mapping | list | torch.Tensor) for value in values)


def _copy_values(content: Any) -> Any:
    """The same structure with tensors as they are and all other leaves copied."""
    if isinstance(content, Mapping):
        return {name: _copy_values(value) for name, value in content.items()}
    if isinstance(content, list) and _has_containers(content):
        return [_copy_values(value) for value in content]
    if isinstance(content, torch.Tensor):
        return dcp.without_view_bits(content)
    return copy.deepcopy(content)


def assign(target: Any, value: Any, *, keeps_tensors: bool = False) -> Any:
    """`value`, but inside `target` as far as that goes: tensors are copied in place, dicts made what was saved.

    `keeps_tensors`: those under names that were not saved stay; one of several ranks may have some that no other has.
    """
    if isinstance(target, torch.Tensor) and isinstance(value, torch.Tensor):
        with torch.no_grad():
            target.copy_(value)
        return target
    if isinstance(target, MutableMapping) and isinstance(value, Mapping):
        for key in [key for key in target if key not in value]:
            if not (keeps_tensors and isinstance(target[key], torch.Tensor)):
                del target[key]
        for key, item in value.items():
            target[key] = assign(target.get(key), item, keeps_tensors=keeps_tensors)
        return target
    return value


def as_metadata_paths(metadata: dcp.Metadata) -> dict[tuple[Any, ...], Any]:
    """The saved items by their path in the state dict, with their storage metadata."""
    paths = cast("dict[str, tuple[Any, ...]]", metadata.planner_data)
    return {tuple(paths[fqn]): item for fqn, item in metadata.state_dict_metadata.items()}
