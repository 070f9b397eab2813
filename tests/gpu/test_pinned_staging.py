"""On a machine with a GPU: what is staged into pinned memory comes back bit for bit. Skips without one.

python -m pytest tests/gpu
"""

from pathlib import Path

import pytest
import torch

from rampmeter.layout import Root
from rampmeter.restore import restore
from rampmeter.saving import Saver
from rampmeter.throttle import Throttle

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")

NUM_FLOATS = 16 * 1024 * 1024


@pytest.mark.parametrize("num_tensors", [4, 400])
def test_a_state_on_the_gpu_comes_back_as_it_was_at_the_snapshot(tmp_path: Path, num_tensors: int) -> None:
    """By a thread and by the process beside training, while training changes the tensors right after the snapshot."""
    state = {
        f"t{i}": torch.full((NUM_FLOATS // num_tensors,), float(i), device="cuda") for i in range(num_tensors)
    }
    root = Root(tmp_path / "root")
    saver = Saver(root, root.claim_attempt(), job="gpu")
    saver.warm_up(state)
    throttle = Throttle()
    throttle.set_rate(None)
    result = saver.begin(1, state, throttle)
    for tensor in state.values():
        tensor.add_(1000.0)
    assert result.result(120.0).committed
    saver.close(60.0)
    loaded = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    assert restore(root, loaded) is not None
    for index, tensor in enumerate(loaded.values()):
        assert torch.equal(tensor, torch.full_like(tensor, float(index)))


def test_the_random_state_of_the_gpu_comes_back(tmp_path: Path) -> None:
    """Dropout masks on the device go on where they were."""
    root = Root(tmp_path / "root")
    saver = Saver(root, root.claim_attempt(), job="gpu")
    throttle = Throttle()
    throttle.set_rate(None)
    assert saver.begin(1, {"t": torch.zeros(1, device="cuda")}, throttle).result(120.0).committed
    saver.close(60.0)
    expected = torch.rand(100, device="cuda")
    assert restore(root, {"t": torch.zeros(1, device="cuda")}) is not None
    assert torch.equal(torch.rand(100, device="cuda"), expected)
