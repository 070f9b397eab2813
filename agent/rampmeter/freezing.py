"""Any value as bytes and back, for parts that torch's checkpoints would not give back as they were."""

import io
from typing import Any

import torch

from rampmeter.savable import blaming


def freeze(key: str, content: Any) -> bytes:
    """The value as bytes, tensors included. ConfigError names what of it cannot be pickled."""
    with blaming(content, pickled, cannot_be="pickled", at=key):
        return pickled(content)


def pickled(content: Any) -> bytes:
    """The same without a name: whatever pickling raises."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def thaw(content: bytes) -> Any:
    """What `freeze` took."""
    return torch.load(io.BytesIO(content), weights_only=False)
