"""A small training run with everything that a checkpoint must hold: dropout, Adam, a scheduler, a data position."""

import torch
from torch import nn

WIDTH = 64


class Data:
    """Batches by position: the same position gives the same batch."""

    def __init__(self):
        self.position = 0

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]

    def next(self):
        generator = torch.Generator().manual_seed(self.position)
        self.position += 1
        return torch.randn(8, WIDTH, generator=generator)


class Run:
    """One run of training; `hidden` sets its size (about 12 * WIDTH * hidden * 2 bytes of state)."""

    def __init__(self, hidden=128, seed=0):
        torch.manual_seed(seed)
        self.model = nn.Sequential(
            nn.Linear(WIDTH, hidden), nn.GELU(), nn.Dropout(0.1), nn.Linear(hidden, WIDTH)
        )
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 10)
        self.data = Data()
        self.losses = []

    @property
    def state(self):
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "scheduler": self.scheduler,
            "data": self.data,
        }

    def train_one(self):
        batch = self.data.next()
        self.optimizer.zero_grad()
        loss = (self.model(batch) - batch).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        self.losses.append(loss.item().hex())
        return loss


def tensors(run):
    """A copy of all parameters."""
    return [p.detach().clone() for p in run.model.parameters()]
