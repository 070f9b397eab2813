"""A training script as users write it for `torchrun`: DDP on the processor, data in order, dropout, one loss a step.

    torchrun --nproc-per-node 2 ddp_training.py ROOT LOSSES STEPS [COORDINATOR]

Rank 0 appends `step loss` to the file LOSSES. `DIE_AT_STEP=n` ends rank 1 there like a crash, once.
"""

import logging
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import rampmeter


class Batches:
    """This rank's batches in a random order; remembers how far it is."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.position = 0

    def next(self) -> torch.Tensor:
        self.position += 1
        generator = torch.Generator().manual_seed(1000 * self.rank + self.position)
        return torch.randn(8, 32, generator=generator)

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position, "rank": self.rank}

    def load_state_dict(self, state: dict[str, int]) -> None:
        assert state["rank"] == self.rank, "this rank's own position comes back"
        self.position = state["position"]


def main(root: str, losses: str, num_steps: str, coordinator: str | None = None) -> int:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(7 + rank)
    layers = [nn.Linear(32, 64), nn.Dropout(0.2), nn.ReLU(), nn.Linear(64, 1)]
    model = DistributedDataParallel(nn.Sequential(*layers))
    optim = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batches = Batches(rank)
    state = {"model": model, "optim": optim, "loader": batches}
    with rampmeter.Checkpointer(root, coordinator=coordinator, interval_max_s=0.5) as ckpt:
        step = ckpt.restore(state) or 0
        while step < int(num_steps) and not ckpt.should_stop:
            step += 1
            loss = model(batches.next()).square().mean()
            optim.zero_grad()
            loss.backward()
            optim.step()
            time.sleep(0.02)
            if rank == 0:
                with Path(losses).open("a") as file:
                    file.write(f"{step} {loss.item().hex()}\n")
            crash_once(rank, step, Path(root))
            ckpt.step(step, state)
    dist.destroy_process_group()
    return ckpt.exit_code


def crash_once(rank: int, step: int, root: Path) -> None:
    """Like a node that is lost: no goodbye, nothing closed."""
    mark = root / "has_died"
    if rank == 1 and step == int(os.environ.get("DIE_AT_STEP", "-1")) and not mark.exists():
        mark.touch()
        os._exit(1)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    sys.exit(main(*sys.argv[1:]))
