"""A training run of several epochs in which everything is random that can be: order, augmentation, dropout.

Whatever a checkpoint does not bring back changes the losses, and is seen in their bits.
"""

import random
from typing import Any

import numpy as np
import torch
from torch import nn

NUM_SAMPLES = 40
BATCH = 4
WIDTH = 16


class ShuffledLoader:
    """A stateful loader: a new order each epoch from torch's generator, and an augmentation of its own worker."""

    def __init__(self) -> None:
        self.epoch = 0
        self.position = 0
        self._order: list[int] = []
        self._worker = torch.Generator().manual_seed(17)

    def state_dict(self) -> dict[str, Any]:
        worker = self._worker.get_state()
        return {"epoch": self.epoch, "position": self.position, "order": self._order, "worker": worker}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch, self.position, self._order = state["epoch"], state["position"], list(state["order"])
        self._worker.set_state(state["worker"])

    def next(self) -> torch.Tensor:
        """The next batch, across the end of the epoch."""
        if self.position == len(self._order):
            self.epoch += bool(self._order)
            self.position, self._order = 0, torch.randperm(NUM_SAMPLES).tolist()
        chosen = self._order[self.position : self.position + BATCH]
        self.position += BATCH
        noise = torch.randn(BATCH, WIDTH, generator=self._worker)
        return torch.tensor(chosen, dtype=torch.float32).reshape(-1, 1) / NUM_SAMPLES + 0.1 * noise


class Training:
    """Adam, a scheduler, a gradient scaler, dropout, and all three generators of a process."""

    def __init__(self, seed: int = 3) -> None:
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.3), nn.Linear(WIDTH, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.99)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=5)
        self.loader = ShuffledLoader()
        self.losses: list[str] = []

    @property
    def state(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "scheduler": self.scheduler,
            "scaler": self.scaler,
            "loader": self.loader,
        }

    def train_one(self) -> None:
        """One step; its loss to the last bit."""
        batch = self.loader.next() * (1.0 + random.random()) + float(np.random.random())
        self.optimizer.zero_grad()
        loss = self.model(batch).square().mean()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()
        self.losses.append(float(loss.detach()).hex())
