"""What programs of several ranks do: train a small model, make a checkpoint of it, and tell what they hold."""

import hashlib
import random
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as plain
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from rampmeter import Checkpointer, dcp
from rampmeter.commit import FlushRecord, SaveRecord, WrittenFile, commit
from rampmeter.core.clock import SystemClock
from rampmeter.hashing import BLOCK_BYTES, FileHasher
from rampmeter.layout import METADATA_NAME, Root, StepName
from rampmeter.manifest import Extras
from rampmeter.provenance import Provenance
from rampmeter.restore import restore
from rampmeter.state import snapshot
from support.roots import NO_TIMINGS, change_manifest, flip

__all__ = [
    "Position",
    "Root",
    "Training",
    "commit_together",
    "draw",
    "flip",
    "held",
    "restore",
    "save_once",
]


class Position:
    """An object with the state_dict protocol around any value."""

    def __init__(self, value):
        self.value = value

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


class Training:
    """AdamW on a model with buffers, on this rank's own batches. `kind` is "ddp", "fsdp" or "single"."""

    def __init__(self, kind, *, seed=0, width=9):
        rank = dist.get_rank()
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        # Two rows and one: with three ranks some of them hold nothing of a tensor.
        self.model = nn.Sequential(
            nn.Linear(width, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.Linear(16, 2), nn.Linear(2, 1)
        )
        self.width = width
        if kind == "fsdp":
            fully_shard(self.model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
        elif kind == "ddp":
            self.model = DistributedDataParallel(self.model)
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.sched = torch.optim.lr_scheduler.StepLR(self.optim, step_size=2, gamma=0.5)
        self.loader = Position(1000 * seed + 10 * rank)
        self.state = {
            "model": self.model,
            "optim": self.optim,
            "sched": self.sched,
            "loader": self.loader,
            "note": f"of rank {rank} of seed {seed}",
        }
        for generate in (random.seed, np.random.seed, torch.manual_seed):
            generate(100 * seed + rank)

    def train(self, num_steps):
        """The losses of this rank."""
        losses = []
        for _ in range(num_steps):
            scale = random.random() + float(np.random.random())
            loss = self.model(torch.randn(4, self.width) * scale + self.loader.value / 1000).square().mean()
            self.optim.zero_grad()
            loss.backward()
            self.optim.step()
            self.sched.step()
            self.loader.value += 1
            losses.append(float(loss.detach()))
        return losses


def draw():
    """What the generators give next."""
    return [random.random(), float(np.random.random()), float(torch.rand(()))]


def held(training):
    """Digests of all tensors of model and optimizer, whole, by their names; the same on all ranks."""
    found = dict(get_model_state_dict(training.model))
    for name, slots in get_optimizer_state_dict(training.model, training.optim)["state"].items():
        found |= {f"optim.{name}.{slot}": value for slot, value in slots.items()}
    return {
        name: hashlib.sha256(_whole(value).contiguous().numpy().tobytes()).hexdigest()[:16]
        for name, value in found.items()
    }


def _whole(value):
    return value.full_tensor() if isinstance(value, DTensor) else value


def save_once(root, step, state, mode="thread"):
    """Make a checkpoint as users do, in this mode of the `Checkpointer`."""
    with Checkpointer(root.path, mode=mode, interval_max_s=0.01, seed=1) as ckpt:
        while ckpt.last_save is None:
            time.sleep(0.001)
            ckpt.step(step, state)
        has_gone_beside = ckpt._saver._route._guardian.group > 0
        report = ckpt.last_save
    assert report.committed, report
    assert has_gone_beside == (mode == "process")


def commit_together(root, step, state, group, block_bytes=BLOCK_BYTES):
    """The same without a `Saver`, in blocks of any size: torch writes it from our snapshot, rank 0 commits it."""
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    box = [_begin(root, step)] if rank == 0 else [None]
    dist.broadcast_object_list(box, src=0, group=group)
    name, claim = box[0]
    stager = dcp.ReusedStager(SystemClock())
    plain.save(
        stager.stage(snapshot(state, step=step, rank=rank, world_size=world_size)),
        checkpoint_id=root.directory(name),
        planner=dcp.CheckedSavePlanner(),
        process_group=group,
    )
    stager.close()
    if rank == 0:
        _commit(root, name, claim, world_size, block_bytes)
    dist.barrier(group)
    return name


def _begin(root, step):
    root.ensure_job_uid()
    claim = root.newest_claim() or root.claim_attempt()
    return StepName.fresh(step=step, attempt=claim.number), claim


def _commit(root, name, claim, world_size, block_bytes):
    record = SaveRecord(
        job_uid=root.ensure_job_uid(),
        job="ranks",
        name=name,
        claim=claim,
        parent=None,
        world_size=world_size,
        extras=Extras(data_position=True, rng=True),
        provenance=Provenance.of(None, None),
        torch_version=torch.__version__,
    )
    written = tuple(
        WrittenFile(rank=_writer_of(path), file=_hashed(path, block_bytes))
        for path in sorted(root.directory(name).iterdir())
    )
    commit(root, record, FlushRecord(written=written, unchecked=(), timings=NO_TIMINGS, lease=None))
    change_manifest(root, name, block_bytes=block_bytes)


def _writer_of(path):
    return 0 if path.name == METADATA_NAME else int(path.name.split("_")[2])


def _hashed(path: Path, block_bytes):
    hasher = FileHasher(block_bytes=block_bytes)
    hasher.update(memoryview(path.read_bytes()))
    return hasher.finish(path.name)
