"""What writer processes write of the state of several ranks: the same as threads of training do."""

from pathlib import Path
from typing import Any

import pytest
from torch.distributed.checkpoint.filesystem import FileSystemReader

from rampmeter.layout import Root
from support.rank_programs import Ranks

pytestmark = pytest.mark.system

SAVE_TRAINING = """
training = Training(kind, seed=1)
training.train(3)
save_once(root, 3, training.state, mode)
answer = {"held": held(training), "loader": training.loader.value, "next": draw()}
"""

LOAD_TRAINING = """
training = Training(kind, seed=2)
found = restore(root, training.state, group=group)
answer = {"step": found.step, "held": held(training), "loader": training.loader.value, "next": draw(),
          "note": training.state["note"], "sched": training.sched.last_epoch}
"""


def save(ranks: Ranks, path: Path, text: str, *, mode: str = "process", **given: Any) -> list[Any]:
    """Two ranks save once, in the mode that is asked for."""
    return ranks.answers(2, path, text, mode=mode, **given)


@pytest.mark.parametrize("kind", ["fsdp", "ddp"])
def test_a_training_run_comes_back_bit_for_bit(ranks: Ranks, tmp_path: Path, kind: str) -> None:
    """Model, buffers, optimizer, scheduler, on two ranks, one and three; what belongs to a rank on that rank."""
    answers = save(ranks, tmp_path, SAVE_TRAINING, kind=kind)
    for num_ranks, loaded_as in ((2, kind), (1, "single"), (3, "fsdp")):
        for rank, found in enumerate(ranks.answers(num_ranks, tmp_path, LOAD_TRAINING, kind=loaded_as)):
            assert (found["held"], found["step"], found["sched"]) == (answers[0]["held"], 3, 3)
            assert found["note"] == "of rank 0 of seed 1"
            if rank < 2:
                assert (found["loader"], found["next"]) == (answers[rank]["loader"], answers[rank]["next"])


PARTS = """
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

class OnlyHere:
    pass

def parts(fill):
    whole, mesh = fill * torch.arange(10.0), init_device_mesh("cpu", (world_size,))
    mine = {f"rank{rank}": fill * torch.full((4,), rank + 1.0)} if rank < 2 else {}
    return {
        "shards": {f"s{n}": distribute_tensor(whole + n, mesh, [Shard(0)]) for n in range(5)},
        "of": {**mine, "all": fill * torch.full((2,), rank + 1.0)},
        "small": Position([int(fill) * rank] * 10),
        "large": Position(fill * torch.full((300_000,), float(rank))),
        "tensor": fill * torch.full((3,), rank + 1.0),
        "plain": {"rank": rank * int(fill), "list": [rank, {"a": rank * int(fill)}]},
    }

def told(state):
    of = {name: tensor.tolist() for name, tensor in state["of"].items()}
    whole = [tensor.full_tensor().tolist() for tensor in state["shards"].values()]
    objects = [state["small"].value, state["large"].value.unique().tolist()]
    return [whole, of, objects, state["tensor"].tolist(), state["plain"]]
"""

SAVE_PARTS = PARTS + "save_once(root, 1, parts(1.0), mode)"
LOAD_PARTS = (
    PARTS
    + """
state = parts(0.0)
restore(root, state, group=group)
answer = told(state)
"""
)


def test_whose_copy_counts_is_the_same_as_from_a_thread(ranks: Ranks, tmp_path: Path) -> None:
    """Shards, tensors of some ranks, the lowest rank's tensors and values, objects by rank and once, and who writes."""
    found, places = {}, {}
    for mode in ("process", "thread"):
        path = tmp_path / mode
        save(ranks, path, SAVE_PARTS, mode=mode)
        found[mode] = [ranks.answers(num, path, LOAD_PARTS) for num in (2, 3)]
        (name,) = Root(path).committed_steps()
        places[mode] = {
            (index.fqn, index.offset): place.relative_path
            for index, place in FileSystemReader(path / str(name)).read_metadata().storage_data.items()
        }
    assert found["process"] == found["thread"]
    assert places["process"] == places["thread"]
    assert found["process"][0][1][1] == {"rank1": [2.0] * 4, "all": [1.0] * 2}


def test_a_state_whose_ranks_differ_in_their_keys_is_refused(ranks: Ranks, tmp_path: Path) -> None:
    """The planner looks at what all ranks have, also among the writers."""
    text = """
import time, rampmeter, torch
with rampmeter.Checkpointer(root.path, mode=mode, interval_max_s=0.01, seed=1) as ckpt:
    state = {"all": torch.ones(3)} | ({"more": torch.ones(3)} if rank else {})
    while ckpt.last_save is None:
        time.sleep(0.001)
        ckpt.step(1, state)
answer = [ckpt.last_save.committed, ckpt.last_save.reason]
"""
    answers = ranks.answers(2, tmp_path, text, mode="process")
    assert answers == [[False, "bad_state"]] * 2
    assert Root(tmp_path).committed_steps() == []


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_what_one_rank_cannot_save_is_named_on_all(ranks: Ranks, tmp_path: Path, mode: str) -> None:
    """The rank and the place of what is wrong, and the same word for it; training goes on."""
    text = """
import time, rampmeter, torch
with rampmeter.Checkpointer(root.path, mode=mode, interval_max_s=0.01, seed=1) as ckpt:
    cfg = {f"of rank {rank}": (lambda: 1) if rank == 1 else 1}
    while ckpt.last_save is None:
        time.sleep(0.001)
        ckpt.step(1, {"t": torch.ones(3), "cfg": cfg})
    torch.distributed.barrier(group)  # whoever leaves has failed for that, too
answer = ckpt.last_save.reason
"""
    outcomes = ranks.run(2, tmp_path, text, mode=mode)
    assert [outcome.get("answer") for outcome in outcomes] == ["bad_state"] * 2, outcomes
    told = [next(said for said in outcome["log"] if "was not saved" in said) for outcome in outcomes]
    assert "rank 1 failed" in told[0]
    for said in told:
        assert "cfg.of rank 1 is of type function and cannot be pickled" in said
