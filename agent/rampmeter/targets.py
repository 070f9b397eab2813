"""What a checkpoint is read into: the user's own tensors, or fresh ones of the saved structure.

Names and shapes are compared with those of the checkpoint here; nothing is read.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from rampmeter import dcp
from rampmeter.core.errors import RestoreError
from rampmeter.fitting import check_item
from rampmeter.leaves import Path
from rampmeter.state import has_tensors, owner_of

_MAX_NAMED = 5

Paths = dict[Path, Any]
"""What is saved, by its path in the state dict, with its storage metadata."""


def check_keys(parts: Mapping[str, Any], saved_keys: set[str]) -> None:
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
    return f"{what} does not match the checkpoint, give it the names that it had at the save ({'; '.join(parts)})"


def _named(names: list[str]) -> str:
    rest = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def target_of(key: str, value: nn.Module | Optimizer, parts: Mapping[str, Any], saved: Paths) -> Any:
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
    target = template(saved)
    for name, value in live.items():
        if isinstance(value, torch.Tensor):
            check_item(f"{key}.{name}", saved.get((name,)), value)
            target[name] = value
    return target


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
    return template(saved, like=lambda path: parameters.get(path[1]) if len(path) > 1 else None)


def _like_none(_path: Path) -> None:
    return None


def template(saved: Paths, like: Callable[[Path], torch.Tensor | None] = _like_none) -> dict[str, Any]:
    """A nested dict (and lists) of the saved structure with empty tensors, to be loaded into."""
    root: dict[str, Any] = {}
    for path, item in saved.items():
        container: Any = root
        for key, following in itertools.pairwise(path):
            container = _child(container, key, [] if isinstance(following, int) else {})
        _child(container, path[-1], _empty(item, like(path)))
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


def _empty(item: Any, like: torch.Tensor | None) -> torch.Tensor | None:
    if not isinstance(item, dcp.TensorStorageMetadata):
        return None
    if like is not None and like.shape == item.size:
        return torch.empty_like(like, dtype=item.properties.dtype)
    return torch.empty(item.size, dtype=item.properties.dtype)


def live_content(value: Any) -> Any:
    return value.state_dict() if isinstance(value, dcp.Stateful) else value


def tensor_at(content: Any, path: Path) -> torch.Tensor | None:
    """The tensor there, if there is one."""
    for key in path:
        try:
            content = content[key]
        except (KeyError, IndexError, TypeError):
            return None
    return content if isinstance(content, torch.Tensor) else None


def dtensor_at(content: Any, path: Path) -> torch.Tensor | None:
    """The DTensor there: what was saved must be read in its shards."""
    found = tensor_at(content, path)
    return found if isinstance(found, dcp.DTensor) else None
