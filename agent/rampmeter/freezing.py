"""Any value as bytes and back, for parts that torch's checkpoints would not give back as they were."""

import io
from typing import Any

import torch

from rampmeter.core.errors import ConfigError


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
