"""Refuses to save a state that training has already lost: NaN or infinite values in a tensor.

Runs on the staged copy before the first byte is written, so that such a state costs neither a slot nor a flush.
"""

import torch

from rampmeter.core.errors import CommitError


def check_finite(name: str, tensor: torch.Tensor) -> bool:
    """Whether `tensor` could be checked at all. CommitError (`not_finite`) names it if a value is not finite."""
    if tensor.is_quantized or tensor.layout is not torch.strided:
        return False
    if tensor.numel() == 0 or not (tensor.is_floating_point() or tensor.is_complex()):
        return True
    try:
        values = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
        low, high = torch.aminmax(values)
    except (RuntimeError, NotImplementedError):  # float8, float4 and what else has no minimum
        return False
    if not bool(torch.isfinite(low)) or not bool(torch.isfinite(high)):
        raise CommitError(f"tensor {name} holds values that are not finite", reason="not_finite")
    return True
