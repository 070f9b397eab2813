"""What of a state cannot be saved, told so that somebody can mend it: where it stands, what is wrong, what to do.

Looks for the culprit only after something has failed: a state that can be saved pays nothing for it. Never changes a
state, and saves nothing.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from rampmeter.core.errors import ConfigError
from rampmeter.failing import in_one_line
from rampmeter.leaves import leaves

Attempt = Callable[[Any], object]
"""Tries with one value what has failed with all of them."""

_OF_THE_HOST = (OSError, MemoryError)
"""What these say is no fault of the state."""

LEAVE_OUT = "leave it out of the state, or hold it in an object whose state_dict() gives plain values"


def flaw_of(tensor: torch.Tensor) -> str | None:
    """Why no checkpoint can hold this tensor, going on after its name; None if nothing is known against it."""
    if tensor.is_nested:
        return "is a nested tensor, which checkpoints cannot hold: save its parts (unbind()) as tensors of their own"
    if tensor.layout is not torch.strided:
        return (
            f"is a tensor of layout {tensor.layout}, which checkpoints cannot hold: make it dense with to_dense(), or "
            "save its indices and values as tensors of their own"
        )
    if tensor.is_quantized:
        return (
            "is a quantized tensor, which checkpoints cannot hold: save int_repr() beside its scale and zero point, "
            "or dequantize() it"
        )
    if tensor.is_meta:
        return "is on the meta device and has no values: give it memory first, for a module with to_empty(device=...)"
    return None


def refuse_flaws(key: str, content: Any, flaw: Callable[[torch.Tensor], str | None] = flaw_of) -> None:
    """ConfigError names the first tensor that has one. Pays for names only where there is something to tell."""
    for path, tensor in leaves(content, (key,)):
        if isinstance(tensor, torch.Tensor):
            found = flaw(tensor)
            if found is not None:
                raise ConfigError(f"{_name(path)} {found}")


@contextlib.contextmanager
def asking(key: str, value: Any) -> Iterator[None]:
    """Around a call of the user's `state_dict()`: what it raises becomes a ConfigError that names the part."""
    try:
        yield
    except (ConfigError, MemoryError):
        raise
    except Exception as error:
        kind = type(value).__name__
        raise ConfigError(
            f"{key}: state_dict() of this {kind} failed ({type(error).__name__}: {in_one_line(error)}): "
            "mend it, or leave it out of the state"
        ) from error


@contextlib.contextmanager
def walking(key: str) -> Iterator[None]:
    """Around what goes through all of a part: one that contains itself has no end."""
    try:
        yield
    except RecursionError as error:
        raise ConfigError(
            f"{key} contains itself, or is nested too deeply: save what it is made of, once and flat"
        ) from error


@contextlib.contextmanager
def blaming(
    content: Any, attempt: Attempt, *, cannot_be: str, instead: str = LEAVE_OUT, at: str = ""
) -> Iterator[None]:
    """Around what does with all of `content`, which stands at `at`, what `attempt` does with one value of it.

    ConfigError names the value for which it fails. What the host lacks is passed on.
    """
    try:
        yield
    except _OF_THE_HOST:
        raise
    except Exception as error:
        path, value, why = _culprit(content, attempt) or ((), content, error)
        name = _name((at, *path) if at else path) or "the state"
        raise ConfigError(
            f"{name} is of type {type(value).__name__} and cannot be {cannot_be} ({in_one_line(why)}): {instead}"
        ) from error


def _culprit(content: Any, attempt: Attempt) -> tuple[tuple[Any, ...], Any, Exception] | None:
    for path, value in leaves(content):
        try:
            attempt(value)
        except Exception as error:
            return path, value, error
    return None


def _name(path: tuple[Any, ...]) -> str:
    return ".".join(map(str, path))
