"""The norm of a tensor against NumPy's, for all types that are checked for being finite and for values of any size."""

import math

import numpy as np
import pytest
import torch

from rampmeter import tensornorm
from rampmeter.tensornorm import norm_of

FLOATING = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
COMPLEX = [torch.complex64, torch.complex128]


def exact(tensor: torch.Tensor) -> float:
    """In NumPy, scaled."""
    whole = torch.complex128 if tensor.is_complex() else torch.float64
    values = np.abs(tensor.to(whole).numpy())
    largest = values.max()
    return float(largest * np.sqrt(np.sum((values / largest) ** 2)))


@pytest.mark.parametrize("dtype", FLOATING + COMPLEX)
def test_it_is_that_of_numpy(dtype: torch.dtype) -> None:
    """Over several pieces, the last of which is short."""
    tensor = torch.randn(2 * tensornorm._PIECE + 17, generator=torch.Generator().manual_seed(1)).to(dtype)
    assert norm_of(tensor) == pytest.approx(exact(tensor), rel=1e-12)


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        (torch.float32, 1e30),
        (torch.float32, 3e38),
        (torch.float32, 1e-40),
        (torch.float16, 6e4),
        (torch.bfloat16, 1e38),
        (torch.complex64, 1e30),
        (torch.float64, 1e200),
        (torch.float64, 1e-200),
        (torch.complex128, 1e300),
    ],
)
def test_nothing_overflows_or_vanishes(dtype: torch.dtype, size: float) -> None:
    """Values whose squares are no numbers of their own type, nor doubles."""
    tensor = torch.full((1000,), size, dtype=dtype)
    norm = norm_of(tensor)
    assert norm == pytest.approx(exact(tensor), rel=1e-12)
    assert norm is not None
    assert math.isfinite(norm)


def test_views_are_looked_at_as_they_are() -> None:
    """Transposed, with gaps, conjugated, without dimensions, empty, all zeros."""
    base = torch.randn(40, 30, generator=torch.Generator().manual_seed(2))
    for view in (base.t(), base[::2, 1::3], torch.complex(base, base).conj(), torch.tensor(-2.0)):
        assert norm_of(view) == pytest.approx(exact(view), rel=1e-12)
    assert norm_of(torch.empty(3, 0)) == 0.0
    assert norm_of(torch.zeros(5, dtype=torch.float64)) == 0.0


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(3),
        torch.tensor([True]),
        torch.tensor([1.0, math.nan]),
        torch.tensor([1.0, -math.inf]),
        torch.tensor([1.0, math.inf], dtype=torch.float64),
        torch.eye(3).to_sparse(),
        torch.ones(4).to(torch.float8_e4m3fn),
        torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8),
    ],
)
def test_what_has_no_norm_has_none(tensor: torch.Tensor) -> None:
    """Integers, values that are not finite, and what cannot be computed with."""
    assert norm_of(tensor) is None
