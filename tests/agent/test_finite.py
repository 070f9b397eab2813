"""The finite check: what it refuses, what it lets through, and what it says it could not look at."""

import pytest
import torch

from rampmeter.core.errors import CommitError
from rampmeter.finite import check_finite


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64]
)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_bad_values_are_refused_by_name(dtype: torch.dtype, bad: float) -> None:
    """One bad value among many fails the save with the tensor's name."""
    tensor = torch.ones(100, dtype=dtype)
    assert check_finite("w", tensor)
    tensor[57] = bad
    with pytest.raises(CommitError, match=r"layer\.w") as caught:
        check_finite("layer.w", tensor)
    assert caught.value.reason == "not_finite"


@pytest.mark.parametrize(
    "tensor",
    [
        torch.empty(0),
        torch.arange(3),
        torch.tensor([True]),
        torch.tensor(1.5),
        torch.ones(2, 0, 3),
        torch.ones(3).t(),
    ],
)
def test_harmless_tensors_pass(tensor: torch.Tensor) -> None:
    """Empty tensors and integers are finite by nature."""
    assert check_finite("x", tensor)


@pytest.mark.parametrize(
    "tensor",
    [torch.ones(4).to(torch.float8_e4m3fn), torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)],
)
def test_what_cannot_be_checked_is_said(tensor: torch.Tensor) -> None:
    """Types without a minimum are not refused; the caller names them as unchecked."""
    assert not check_finite("x", tensor)
