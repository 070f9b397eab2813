"""What stands where in the dicts, lists and tuples of a state. Changes nothing."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

Path = tuple[Any, ...]
"""Where something stands: keys of dicts and indices of lists."""


def leaves(content: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """All that is no dict, list or tuple, each with its place below `path`."""
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield from leaves(value, (*path, key))
    elif isinstance(content, list | tuple):
        for index, value in enumerate(content):
            yield from leaves(value, (*path, index))
    else:
        yield path, content


def tensors_in(content: Any) -> Iterator[torch.Tensor]:
    """All tensors."""
    return (value for _, value in leaves(content) if isinstance(value, torch.Tensor))
