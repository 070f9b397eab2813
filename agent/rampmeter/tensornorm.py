"""The norm of one tensor, in double precision whatever its type, piece by piece so that no large copy is made of it.

Decides nothing; what follows from a norm is `norms`' business.
"""

import math

import torch

_PIECE = 1 << 18
"""Elements that are looked at together: as doubles they stay in a core's cache."""


def norm_of(tensor: torch.Tensor) -> float | None:
    """Its L2 norm; None if it has none: integers, what cannot be computed with, values that are not finite."""
    if tensor.is_quantized or tensor.layout is not torch.strided:
        return None
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return None
    try:
        values = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
        norm = math.hypot(*map(_norm_of_piece, torch.split(values.reshape(-1), _PIECE)))
    except (RuntimeError, NotImplementedError):  # float8, float4 and what else has no double
        return None
    return norm if math.isfinite(norm) else None


def _norm_of_piece(values: torch.Tensor) -> float:
    norm = float(torch.linalg.vector_norm(values, dtype=torch.float64))
    if values.dtype is not torch.float64 or 1e-140 < norm < math.inf:
        return norm
    largest = float(torch.linalg.vector_norm(values, ord=math.inf))  # its squares are no doubles any more
    if largest == 0.0 or not math.isfinite(largest):
        return largest
    return largest * float(torch.linalg.vector_norm(values / largest))
