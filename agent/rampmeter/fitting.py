"""Whether what was saved can be put into what training holds, bit for bit.

RestoreError says what does not fit, with both sides and what to do. Nothing is ever converted, broadcast or cut: a
value that would not be the saved one is refused. Touches neither side, and runs before either is.
"""

from collections.abc import Mapping, MutableMapping
from typing import Any

import torch
from torch.optim import Optimizer

from rampmeter import dcp
from rampmeter.core.errors import RestoreError


def check_item(name: str, item: Any, target: torch.Tensor) -> None:
    """The tensor that is saved as `item`, known by its metadata, into `target`."""
    if not isinstance(item, dcp.TensorStorageMetadata):
        raise RestoreError(
            f"tensor {name} has shape None in the checkpoint and {list(target.shape)} here: no tensor was saved under "
            "this name; put there what was"
        )
    _check(name, list(item.size), item.properties.dtype, target)


def check_content(name: str, value: Any, target: Any) -> None:
    """What was read, into `target` as `state.assign` goes: only tensors that are filled in place can refuse."""
    if isinstance(target, torch.Tensor) and isinstance(value, torch.Tensor):
        _check(name, list(value.shape), value.dtype, target)
        if isinstance(target, dcp.DTensor) != isinstance(value, dcp.DTensor):
            raise RestoreError(
                f"tensor {name} is spread over ranks (DTensor) on one side only: {type(value).__name__} in the "
                f"checkpoint, {type(target).__name__} here; restore into the kind that was saved"
            )
    elif isinstance(target, MutableMapping) and isinstance(value, Mapping):
        for key, item in value.items():
            check_content(f"{name}.{key}", item, target.get(key))


def _check(name: str, shape: list[int], dtype: torch.dtype, target: torch.Tensor) -> None:
    if shape != list(target.shape):
        raise RestoreError(
            f"tensor {name} has shape {shape} in the checkpoint and {list(target.shape)} here: make it of the shape "
            "that was saved"
        )
    if dtype != target.dtype:
        raise RestoreError(
            f"tensor {name} is {dtype} in the checkpoint and {target.dtype} here: a restore converts nothing; "
            f"make it {dtype}, restore, and convert it then"
        )
    if target.is_meta:
        raise RestoreError(
            f"tensor {name} is on the meta device and can hold no values: give it memory first, "
            "for a module with to_empty(device=...)"
        )
    if is_folded(target):
        raise RestoreError(f"tensor {name} cannot be filled: {FOLDED}")


FOLDED = "several of its elements are one piece of memory (expand); give it memory of its own with clone()"


def is_folded(tensor: torch.Tensor) -> bool:
    """Whether it was expanded: torch writes into no such tensor."""
    local = dcp.local_part(tensor)
    if local.layout is not torch.strided or local.is_nested or not local.numel():
        return False
    return any(not stride and size > 1 for stride, size in zip(local.stride(), local.shape, strict=True))


def check_optimizer(key: str, content: Mapping[str, Any], optimizer: Optimizer) -> None:
    """The saved groups must be those of `optimizer`, by number, size and settings: torch mixes them without a word."""
    saved, live = content.get("param_groups", []), optimizer.param_groups
    if len(saved) != len(live):
        raise RestoreError(
            f"optimizer state[{key!r}] has {len(saved)} parameter groups in the checkpoint and {len(live)} here: "
            "make the groups as they were at the save"
        )
    for index, (before, now) in enumerate(zip(saved, live, strict=True)):
        if len(before["params"]) != len(now["params"]):
            raise RestoreError(
                f"group {index} of optimizer state[{key!r}] has {len(before['params'])} parameters in the "
                f"checkpoint and {len(now['params'])} here: make the groups as they were at the save"
            )
        missing = sorted(_needed(optimizer) - set(before))
        if missing:
            raise RestoreError(
                f"optimizer state[{key!r}] was saved without {', '.join(missing)}, which {type(optimizer).__name__} "
                "needs: it was an optimizer of another kind; use that kind"
            )


def _needed(optimizer: Optimizer) -> set[str]:
    """The settings that it cannot do without. Flags torch adds by itself: newer versions of it have more of them."""
    return {
        name
        for name, value in optimizer.defaults.items()
        if value is not None and not isinstance(value, bool)
    }
