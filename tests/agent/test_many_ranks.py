"""Jobs of several ranks, each a real process: what is saved is what each of them had, and any number can load it."""

from pathlib import Path
from typing import Any

import pytest

from rampmeter.layout import Root
from rampmeter.marks import Mark, has_mark
from support.rank_programs import Ranks

SAVE = """
training = Training(kind, seed=1)
training.train(3)
save_once(root, 3, training.state)
answer = {"held": held(training), "loader": training.loader.value, "next": draw()}
"""

LOAD = """
training = Training(kind, seed=2)
started_with = {"loader": training.loader.value, "next": draw()}
training = Training(kind, seed=2)
found = restore(root, training.state, group=group)
answer = {
    "step": found.step,
    "held": held(training),
    "loader": training.loader.value,
    "next": draw(),
    "started_with": started_with,
    "note": training.state["note"],
    "values": found.values,
    "lr": training.optim.param_groups[0]["lr"],
    "sched": training.sched.last_epoch,
}
"""


def _save(ranks: Ranks, path: Path, kind: str, num: int) -> list[Any]:
    return ranks.answers(num, path, SAVE, kind=kind)


@pytest.mark.parametrize(
    ("saved_as", "num_saved", "loaded_as", "num_loaded"),
    [
        ("fsdp", 2, "single", 1),
        ("fsdp", 2, "fsdp", 3),
        ("fsdp", 3, "fsdp", 2),
        ("fsdp", 3, "ddp", 2),
        ("ddp", 2, "single", 1),
        ("single", 1, "ddp", 2),
        ("single", 1, "fsdp", 3),
    ],
)
def test_tensors_are_equal_whatever_the_number_of_ranks(
    ranks: Ranks, tmp_path: Path, saved_as: str, num_saved: int, loaded_as: str, num_loaded: int
) -> None:
    """Model, buffers, optimizer and scheduler come back bit for bit on all ranks; plain values are those of rank 0."""
    saved = _save(ranks, tmp_path, saved_as, num_saved)
    loaded = ranks.answers(num_loaded, tmp_path, LOAD, kind=loaded_as)
    assert len(saved[0]["held"]) == 8 + 3 + 3 * 8
    for found in loaded:
        assert found["held"] == saved[0]["held"]
        assert (found["note"], found["values"]) == ("of rank 0 of seed 1", {"note": "of rank 0 of seed 1"})
        assert (found["step"], found["lr"], found["sched"]) == (3, 0.005, 3)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_the_same_number_of_ranks_goes_on_as_if_nothing_had_happened(
    ranks: Ranks, tmp_path: Path, kind: str
) -> None:
    """Each rank draws its own numbers, reads on in its own data, and has the losses of the run that was not stopped."""
    straight = """
training = Training(kind, seed=1)
training.train(3)
save_once(root, 3, training.state)
answer = training.train(4)
"""
    resumed = """
training = Training(kind, seed=2)
training.train(1)
restore(root, training.state, group=group)
answer = training.train(4)
"""
    expected = ranks.answers(2, tmp_path, straight, kind=kind)
    outcomes = ranks.run(2, tmp_path, resumed, kind=kind)
    assert [outcome["answer"] for outcome in outcomes] == expected
    assert expected[0] != expected[1]
    assert [outcome["log"] for outcome in outcomes] == [[], []]


@pytest.mark.parametrize(
    ("num_saved", "num_loaded", "said"),
    [
        (
            2,
            1,
            "saved by 2 ranks and is loaded by 1: tensors are equal; "
            "what rank 1 had of the random state, loader, sched is not taken over",
        ),
        (
            2,
            4,
            "saved by 2 ranks and is loaded by 4: tensors are equal; ranks 2 to 3 keep the random state of the start; "
            "ranks 2 to 3 keep the position in the data of the start (loader)",
        ),
        (
            1,
            2,
            "saved by 1 rank and is loaded by 2: tensors are equal; rank 1 keeps the random state of the start; "
            "rank 1 keeps the position in the data of the start (loader)",
        ),
    ],
)
def test_what_belongs_to_a_rank_is_taken_by_the_rank_of_that_number(
    ranks: Ranks, tmp_path: Path, num_saved: int, num_loaded: int, said: str
) -> None:
    """A rank that the checkpoint does not know keeps what it started with; rank 0 says in one line what is lost."""
    saved = _save(ranks, tmp_path, "ddp", num_saved)
    outcomes = ranks.run(num_loaded, tmp_path, LOAD, kind="ddp")
    for rank, outcome in enumerate(outcomes):
        found = outcome["answer"]
        expected = saved[rank] if rank < num_saved else found["started_with"]
        assert (found["loader"], found["next"]) == (expected["loader"], expected["next"])
    assert [len(outcome["log"]) for outcome in outcomes] == [1] + [0] * (num_loaded - 1)
    assert outcomes[0]["log"][0].endswith(said)


def test_objects_are_stored_by_rank_or_once(ranks: Ranks, tmp_path: Path) -> None:
    """Small objects and positions in the data by rank; large objects, plain tensors and plain values are rank 0's."""
    saving = """
import torch
state = {
    "small": Position([rank] * 10),
    "large": Position(torch.full((300_000,), rank)),
    "big_sampler": Position(torch.full((300_000,), rank)),
    "odd": Position({rank: "an int key"}),
    "tensor": torch.full((3,), rank),
    "plain": {"rank": rank, "list": [rank, {"a": rank}]},
}
save_once(root, 1, state)
"""
    loading = """
import torch
keys = ["small", "large", "big_sampler", "odd"]
state = {key: Position(None) for key in keys} | {"tensor": torch.zeros(3, dtype=int), "plain": None}
restore(root, state, group=group)
answer = [state["small"].value[0], int(state["large"].value[0]), int(state["big_sampler"].value[0])]
answer += [next(iter(state["odd"].value)), int(state["tensor"][0]), state["plain"]]
"""
    ranks.answers(3, tmp_path, saving)
    plain = {"rank": 0, "list": [0, {"a": 0}]}
    assert ranks.answers(3, tmp_path, loading) == [[rank, 0, rank, rank, 0, plain] for rank in range(3)]
    assert ranks.answers(1, tmp_path, loading) == [[0, 0, 0, 0, 0, plain]]


def test_tensors_of_a_name_that_only_some_ranks_have_are_stored_by_them(ranks: Ranks, tmp_path: Path) -> None:
    """As parallel stages have them, in a dict of the state: a rank takes its own, a process that is alone takes all.

    Of a name that several have the lowest of them counts, also in a save after a restore.
    """
    saving = """
import torch
state = {"stage": {f"of{rank}": torch.full((4,), float(rank)), "all": torch.full((2,), float(rank))}}
if rank:
    state["stage"]["tail"] = torch.full((3,), float(rank))
save_once(root, 1, state)
"""
    loading = """
import torch
names = {f"of{rank}": 4, "all": 2} | ({"tail": 3} if rank else {})
state = {"stage": {name: torch.full((size,), -1.0) for name, size in names.items()}}
restore(root, state, group=group)
answer = {name: tensor.unique().tolist() for name, tensor in state["stage"].items()}
"""
    ranks.answers(3, tmp_path, saving)
    assert ranks.answers(3, tmp_path, loading) == [
        {"of0": [0.0], "all": [0.0]},
        {"of1": [1.0], "all": [0.0], "tail": [1.0]},
        {"of2": [2.0], "all": [0.0], "tail": [1.0]},
    ]
    everything = {"of0": [0.0], "all": [0.0], "of1": [1.0], "of2": [2.0], "tail": [1.0]}
    assert ranks.answers(1, tmp_path, loading) == [everything]


SHARDED = """
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

def sharded(whole):
    return distribute_tensor(whole, init_device_mesh("cpu", (world_size,)), [Shard(0)])
"""


def test_sharded_tensors_in_objects_and_dicts_come_back_in_their_shards(ranks: Ranks, tmp_path: Path) -> None:
    """An average of the weights that an object holds as DTensors, and DTensors in the state, at two sizes."""
    saving = """
state = {
    "ema": Position({"w": sharded(torch.arange(10.0)), "n": 7}),
    "direct": sharded(torch.arange(5.0)),
}
save_once(root, 1, state)
"""
    loading = """
ema, direct = Position({"w": sharded(torch.zeros(10)), "n": 0}), sharded(torch.zeros(5))
restore(root, {"ema": ema, "direct": direct}, group=group)
answer = [isinstance(ema.value["w"], DTensor), ema.value["n"]]
answer += [ema.value["w"].full_tensor().tolist(), direct.full_tensor().tolist()]
"""
    ranks.answers(2, tmp_path, SHARDED + saving)
    expected = [True, 7, list(range(10)), list(range(5))]
    assert ranks.answers(2, tmp_path, SHARDED + loading) == [expected] * 2
    assert ranks.answers(3, tmp_path, SHARDED + loading) == [expected] * 3


def test_sharded_tensors_that_cannot_be_stored_in_shards_are_refused(ranks: Ranks, tmp_path: Path) -> None:
    """They would be stored as bytes of one rank: the part is named."""
    saving = """
commit_together(root, 1, {"odd": Position({0: sharded(torch.zeros(4))})}, group)
"""
    assert {outcome["error"] for outcome in ranks.run(2, tmp_path, SHARDED + saving)} == {"ConfigError"}


def test_a_tensor_that_is_not_finite_on_one_rank_fails_the_save_of_all(ranks: Ranks, tmp_path: Path) -> None:
    """The rank looks at its own shard, before any file is opened."""
    saving = """
whole = torch.arange(8.0)
whole[7] = float("nan")
commit_together(root, 1, {"w": sharded(whole)}, group)
"""
    outcomes = ranks.run(2, tmp_path, SHARDED + saving)
    assert [outcome["error"] for outcome in outcomes] == ["CheckpointException"] * 2
    assert "not finite" in outcomes[0]["message"]
    assert list(tmp_path.glob("step-*/*.distcp")) == []


def test_a_tensor_that_cannot_be_checked_is_named_by_the_rank_that_writes_it(
    ranks: Ranks, tmp_path: Path
) -> None:
    """Once, although every rank holds a copy."""
    program = """
import torch
import torch.distributed.checkpoint as plain
from rampmeter import dcp
planner = dcp.CheckedSavePlanner()
state = {f"t{number}": torch.ones(4).to(torch.float8_e4m3fn) for number in range(4)}
plain.save(state, checkpoint_id=root.path / "c", planner=planner, process_group=group)
answer = planner.unchecked
"""
    answers = ranks.answers(2, tmp_path, program)
    assert sorted(answers[0] + answers[1]) == ["t0", "t1", "t2", "t3"]


def test_each_block_is_read_once_whoever_needs_it(ranks: Ranks, tmp_path: Path) -> None:
    """Four ranks that need all of it read it once between them, each about a quarter."""
    counting = """
from rampmeter.verification import Verifier
verify, read = Verifier._verify_block, []
def counted(self, entry, index, expected):
    verify(self, entry, index, expected)
    if entry.name != ".metadata":
        read.append((entry.name, index))
Verifier._verify_block = counted
training = Training("ddp", seed=2, width=200)
restore(root, training.state, group=group)
answer = read
"""
    saving = 'commit_together(root, 3, Training("ddp", seed=1, width=200).state, group, 1000)'
    ranks.answers(4, tmp_path, saving)
    read = ranks.answers(4, tmp_path, counting)
    files = list(tmp_path.glob("step-*/*.distcp"))
    num_blocks = sum(-(-file.stat().st_size // 1000) for file in files)
    everything = [tuple(block) for blocks in read for block in blocks]
    assert len(everything) == len(set(everything)) == num_blocks
    shares = [len(blocks) / num_blocks for blocks in read]
    assert max(shares) < 0.3, shares


def test_a_checkpoint_is_proven_when_all_of_it_was_read(ranks: Ranks, tmp_path: Path) -> None:
    """By all ranks together; not by fewer ranks, which leave out what belonged to the others."""
    saving = 'commit_together(root, 3, Training("ddp", seed=1).state, group, 100)'
    ranks.answers(2, tmp_path, saving)
    name = Root(tmp_path).step_names()[0]
    ranks.answers(1, tmp_path, LOAD, kind="single")
    assert not has_mark(tmp_path / str(name), Mark.PROVEN)
    ranks.answers(2, tmp_path, LOAD, kind="ddp")
    assert has_mark(tmp_path / str(name), Mark.PROVEN)
