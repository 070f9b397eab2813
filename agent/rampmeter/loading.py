"""Puts a verified checkpoint back into the user's state.

Two rounds: first everything that needs fresh memory (plain values, Stateful objects, our own parts), then modules and
optimizers in place. Names and shapes are compared before the first round and bytes are verified before each, so the
user's objects are untouched until the whole checkpoint was found to fit.
"""

import itertools
import logging
from collections.abc import Mapping, MutableMapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from rampmeter import dcp
from rampmeter.core.errors import RestoreError
from rampmeter.state import (
    FROZEN,
    RESERVED,
    RNG,
    State,
    apply_rng,
    as_metadata_paths,
    assign,
    has_tensors,
    owner_of,
    resolve,
    rng_key,
    thaw,
)

_log = logging.getLogger("rampmeter")
_MAX_NAMED = 5

Paths = dict[tuple[Any, ...], Any]


def load_state(
    state: State, reader: dcp.VerifiedReader, *, rank: int = 0, single_process: bool = True
) -> dict[str, Any]:
    """Fill `state`; returns its plain values (for states that a callable made).

    CorruptCheckpoint or RestoreError if bytes, names or shapes do not fit; then nothing was touched.
    """
    parts = resolve(state)
    saved = as_metadata_paths(reader.read_metadata())
    frozen_keys = {path[2] for path in saved if path[:2] == (RESERVED, FROZEN)}
    _check_keys(parts, {path[0] for path in saved} - {RESERVED} | frozen_keys)
    in_place = {
        key: value
        for key, value in parts.items()
        if isinstance(value, nn.Module | Optimizer) and key not in frozen_keys
    }
    for key, value in parts.items():
        if isinstance(value, torch.Tensor):
            _check_shape(key, saved.get((key,)), value)
    targets = {key: _target(key, value, parts, saved) for key, value in in_place.items()}
    fresh = _fresh_target(saved, without=in_place.keys(), rank=rank)
    dcp.load(fresh, reader, single_process=single_process)
    own = fresh.pop(RESERVED, {})  # an adopted checkpoint has none
    contents = fresh | {key: thaw(content) for key, content in own.get(FROZEN, {}).items()}
    if targets:
        dcp.load(targets, reader, single_process=single_process)
    _apply(parts, contents | targets)
    _apply_own_rng(own, rank)
    return _assign_plain(parts, contents)


def _check_keys(parts: Mapping[str, Any], saved_keys: set[str]) -> None:
    missing = sorted(set(parts) - saved_keys)
    unexpected = sorted(saved_keys - set(parts))
    if missing or unexpected:
        raise RestoreError(_mismatch("the state", missing, unexpected))


def _mismatch(what: str, missing: list[str], unexpected: list[str]) -> str:
    parts = []
    if missing:
        parts.append(f"not in the checkpoint: {_named(missing)}")
    if unexpected:
        parts.append(f"only in the checkpoint: {_named(unexpected)}")
    return f"{what} does not match the checkpoint ({'; '.join(parts)})"


def _named(names: list[str]) -> str:
    rest = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _target(key: str, value: nn.Module | Optimizer, parts: Mapping[str, Any], saved: Paths) -> Any:
    own = {path[1:]: item for path, item in saved.items() if path[0] == key}
    if isinstance(value, nn.Module):
        return _module_target(key, value, own)
    return _optimizer_target(key, owner_of(key, value, parts), own)


def _module_target(key: str, module: nn.Module, saved: Paths) -> dict[str, Any]:
    """The module's own tensors, to be loaded in place."""
    live = dcp.get_model_state_dict(module) if has_tensors(module) else {}
    names = {path[0] for path in saved}
    missing, unexpected = sorted(set(live) - names), sorted(names - set(live))
    if missing or unexpected:
        raise RestoreError(_mismatch(f"module state[{key!r}]", missing, unexpected))
    target = _template(saved)
    for name, value in live.items():
        if isinstance(value, torch.Tensor):
            _check_shape(f"{key}.{name}", saved.get((name,)), value)
            target[name] = value
    return target


def _check_shape(name: str, item: Any, tensor: torch.Tensor) -> None:
    found = list(item.size) if isinstance(item, dcp.TensorStorageMetadata) else None
    if found != list(tensor.shape):
        raise RestoreError(f"tensor {name} has shape {found} in the checkpoint and {list(tensor.shape)} here")


def _optimizer_target(key: str, owner: nn.Module, saved: Paths) -> dict[str, Any]:
    """Fresh tensors like the parameters they belong to: an optimizer that never stepped has none to load into."""
    parameters = {
        name: parameter
        for name, parameter in dcp.get_model_state_dict(owner).items()
        if isinstance(parameter, torch.Tensor)
    }
    unexpected = sorted({path[1] for path in saved if path[0] == "state"} - set(parameters))
    if unexpected:
        raise RestoreError(_mismatch(f"optimizer state[{key!r}]", [], unexpected))
    return _template(saved, like=parameters)


def _template(saved: Paths, like: Mapping[str, torch.Tensor] | None = None) -> dict[str, Any]:
    """A nested dict (and lists) of the saved structure with empty tensors, to be loaded into."""
    root: dict[str, Any] = {}
    for path, item in saved.items():
        container: Any = root
        for key, following in itertools.pairwise(path):
            container = _child(container, key, [] if isinstance(following, int) else {})
        parameter = (like or {}).get(path[1]) if len(path) > 1 else None
        _child(container, path[-1], _empty(item, parameter))
    return root


def _child(container: Any, key: Any, value: Any) -> Any:
    """The child at `key`, put there if it is not there yet; lists grow as needed."""
    if isinstance(container, list):
        container.extend([None] * (key + 1 - len(container)))
        if container[key] is None:
            container[key] = value
    else:
        container.setdefault(key, value)
    return container[key]


def _empty(item: Any, parameter: torch.Tensor | None) -> torch.Tensor | None:
    if not isinstance(item, dcp.TensorStorageMetadata):
        return None
    if parameter is not None and parameter.shape == item.size:
        return torch.empty_like(parameter, dtype=item.properties.dtype)
    return torch.empty(item.size, dtype=item.properties.dtype)


def _fresh_target(saved: Paths, *, without: Any, rank: int) -> dict[str, Any]:
    wanted = {
        path: item
        for path, item in saved.items()
        if path[0] not in without and (path[:2] != (RESERVED, RNG) or path[2] == rng_key(rank))
    }
    return _template(wanted)


def _apply(parts: Mapping[str, Any], contents: Mapping[str, Any]) -> None:
    """Hand each object its part. An error here names the part; those before it are already loaded."""
    for key, value in parts.items():
        try:
            _apply_one(key, value, parts, contents[key])
        except Exception as error:
            raise RestoreError(f"state[{key!r}] refused what was saved for it: {error}") from error


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


def _apply_own_rng(own: Mapping[str, Any], rank: int) -> None:
    content = own.get(RNG, {}).get(rng_key(rank))
    if content is None:
        _log.warning("the checkpoint has no random state for rank %d: it keeps the one it started with", rank)
        return
    apply_rng(content)


def _assign_plain(parts: Mapping[str, Any], contents: Mapping[str, Any]) -> dict[str, Any]:
    values = {}
    for key, value in parts.items():
        if isinstance(value, nn.Module | Optimizer | dcp.Stateful):
            continue
        values[key] = assign(value, contents[key])
        if isinstance(parts, MutableMapping):
            parts[key] = values[key]
    return values
