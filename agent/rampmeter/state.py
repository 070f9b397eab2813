"""Turns the user's `state` into one DCP state dict.

A state is a dict of modules, optimizers, Stateful objects, tensors and plain values, or a callable that returns one.
Tensors stay references (the stager copies them); everything else is copied here and now, so that nothing that training
does later can tear the snapshot. This module never writes into the user's objects; `loading` does.
"""

import copy
import io
import itertools
import pickle
import random
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from rampmeter import dcp
from rampmeter.core.errors import ConfigError

State: TypeAlias = Mapping[str, Any] | Callable[[], Mapping[str, Any]]

RESERVED = "rampmeter"  # the key under which our own parts stand
FROZEN = "frozen"  # values that DCP would not give back as they were, as bytes
RNG = "rng"
_MAX_PLAIN_LEAVES = 64  # each leaf is an item of its own in the checkpoint
DATA_WORDS = ("loader", "sampler", "dataset", "data")


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


def snapshot(state: State, *, step: int, rank: int = 0) -> dict[str, Any]:
    """One state dict for DCP: live tensors and copied values. ConfigError names the part that cannot be saved."""
    parts = resolve(state)
    result: dict[str, Any] = {}
    frozen: dict[str, bytes] = {}
    for key, value in parts.items():
        content = content_of(key, value, parts)
        if _survives_flattening(content):
            result[key] = _copy_values(key, content)
        else:
            frozen[key] = freeze(key, content)
    result[RESERVED] = {"step": step, RNG: {rng_key(rank): capture_rng()}, FROZEN: frozen}
    return result


def has_data_position(state: Mapping[str, Any]) -> bool:
    """Whether some part looks like the position in the data: a Stateful loader, sampler or dataset by name."""
    return any(
        isinstance(value, dcp.Stateful)
        and not isinstance(value, nn.Module | Optimizer)
        and any(word in f"{key} {type(value).__name__}".lower() for word in DATA_WORDS)
        for key, value in state.items()
    )


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


def _copy_values(key: str, content: Any) -> Any:
    """The same structure with tensors as they are and all other leaves copied."""
    if isinstance(content, Mapping):
        return {name: _copy_values(key, value) for name, value in content.items()}
    if isinstance(content, list) and _has_containers(content):
        return [_copy_values(key, value) for value in content]
    if isinstance(content, torch.Tensor):
        return content
    try:
        return copy.deepcopy(content)
    except Exception as error:
        raise ConfigError(f"state[{key!r}] holds a {type(content).__name__} that cannot be copied") from error


def freeze(key: str, content: Any) -> bytes:
    """The value as bytes, tensors included. ConfigError names the part that cannot be pickled."""
    buffer = io.BytesIO()
    try:
        torch.save(content, buffer)
    except Exception as error:
        raise ConfigError(f"state[{key!r}] cannot be saved: {error}") from error
    return buffer.getvalue()


def thaw(content: bytes) -> Any:
    """What `freeze` took."""
    return torch.load(io.BytesIO(content), weights_only=False)


def rng_key(rank: int) -> str:
    return f"rank{rank}"


def capture_rng() -> bytes:
    """The random state of Python, NumPy and torch on this rank, at this instant."""
    state = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state().numpy().tobytes(),
        "cuda": [device.cpu().numpy().tobytes() for device in _cuda_states()],
    }
    return pickle.dumps(state)


def apply_rng(content: bytes) -> None:
    """Put the random state back. Devices that the checkpoint does not know keep theirs."""
    state = pickle.loads(content)  # noqa: S301 - verified against the manifest before it gets here
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(_byte_tensor(state["torch"]))
    for index, device_state in enumerate(state["cuda"][: len(_cuda_states())]):
        torch.cuda.set_rng_state(_byte_tensor(device_state), index)


def _cuda_states() -> list[torch.Tensor]:
    return torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []


def _byte_tensor(content: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def assign(target: Any, value: Any) -> Any:
    """`value`, but inside `target` as far as that goes: tensors are copied in place, dicts filled."""
    if isinstance(target, torch.Tensor) and isinstance(value, torch.Tensor):
        with torch.no_grad():
            target.copy_(value)
        return target
    if isinstance(target, MutableMapping) and isinstance(value, Mapping):
        for key, item in value.items():
            target[key] = assign(target.get(key), item)
        return target
    return value


def as_metadata_paths(metadata: dcp.Metadata) -> dict[tuple[Any, ...], Any]:
    """The saved items by their path in the state dict, with their storage metadata."""
    paths = cast("dict[str, tuple[Any, ...]]", metadata.planner_data)
    return {tuple(paths[fqn]): item for fqn, item in metadata.state_dict_metadata.items()}
