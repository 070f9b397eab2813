"""The training that the demo's jobs do: real, small, and the same bit for bit whenever it starts from the same state.

Randomness comes from two places only: the data, drawn by position from the job's seed, and dropout, drawn from torch's
global generator, which a checkpoint carries. What is emulated is the device: see `Training.train_one` and `copy_out`.
"""

from typing import Any

import torch
import torch._dynamo  # the first optimizer imports it: paid once here, not by every forked process
import xxhash
from torch import nn

from rampmeter.core.clock import Clock
from rampmeter_coordinator.demo.scenario import NUM_LAYERS, JobSpec, Scenario

_BATCH = 8
_NUM_FEATURES = 8
_NUM_CLASSES = 4
_LEARNING_RATE = 2e-4
_DROPOUT = 0.05


class DataStream:
    """Endless batches; `position` is all that a resume needs."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.position = 0

    def next_batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Features and classes; the class is the largest of the first features."""
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + self.position)
        self.position += 1
        features = torch.randn(_BATCH, _NUM_FEATURES, generator=generator)
        return features, features[:, :_NUM_CLASSES].argmax(dim=1)

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


class Training:
    """One job's model, optimizer and data."""

    def __init__(self, job: JobSpec, scenario: Scenario, clock: Clock) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(job.seed)
        self._clock = clock
        self._step_s = scenario.step_s
        self._copy_s = job.state_bytes / scenario.copy_bytes_per_s
        self.model = _network(job.layer_width)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=_LEARNING_RATE, fused=True)
        self.data = DataStream(job.seed)

    def train_one(self) -> float:
        """One step: computed on the CPU, then padded to the time that the emulated device takes."""
        begin_s = self._clock.now()
        features, classes = self.data.next_batch()
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(features), classes)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self._clock.sleep(max(0.0, begin_s + self._step_s - self._clock.now()))
        return float(loss.detach())

    def parts(self) -> dict[str, Any]:
        """What a checkpoint holds; torch's random state is the checkpointer's business."""
        return {"model": self.model, "optimizer": self.optimizer, "data": self.data}

    def copy_out(self) -> str:
        """The copy from the emulated device to the host, at its speed; returns the digest of the whole state."""
        begin_s = self._clock.now()
        digest = self.digest()
        self._clock.sleep(max(0.0, begin_s + self._copy_s - self._clock.now()))
        return digest

    def digest(self) -> str:
        """Over every parameter, every moment, the position in the data and the random state."""
        hasher = xxhash.xxh3_128()
        for name, parameter in self.model.named_parameters():
            moments = self.optimizer.state.get(parameter, {})
            hasher.update(name.encode())
            for tensor in (parameter.detach(), *(moments[key] for key in sorted(moments))):
                hasher.update(tensor.numpy().data)
        hasher.update(str(self.data.position).encode())
        hasher.update(torch.get_rng_state().numpy().data)
        return str(hasher.hexdigest())


def _network(width: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Linear(_NUM_FEATURES, width)]
    for _ in range(NUM_LAYERS):
        layers += [nn.ReLU(), nn.Dropout(_DROPOUT), nn.Linear(width, width)]
    return nn.Sequential(*layers, nn.ReLU(), nn.Linear(width, _NUM_CLASSES))
