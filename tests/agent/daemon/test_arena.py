"""The memory that two processes share: what is staged is what the other one sees."""

import itertools
import os
import pickle
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from rampmeter.core.errors import ConfigError
from rampmeter.daemon.arena import Arena, host_bytes, mapped, num_tensors, unpacked
from support.hired import CLOCK
from support.processes import num_descriptors


@pytest.fixture
def arena():
    arena = Arena(CLOCK)
    yield arena
    arena.close()


def seen(arena: Arena, state: dict[str, Any]) -> dict[str, Any]:
    """What the writer makes of it, through a mapping of its own."""
    placed = arena.stage(state)
    assert arena.descriptor is not None
    return unpacked(pickle.loads(pickle.dumps(placed)), mapped(arena.descriptor, arena.num_bytes))


DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.uint8]
DTYPES += [torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_kind_of_number_comes_over_bit_for_bit(arena: Arena, dtype: torch.dtype) -> None:
    """Also where something odd stands before it."""
    content = torch.randint(0, 2, (3, 5, 7)).to(dtype)
    found = seen(arena, {"odd": torch.ones(3, dtype=torch.uint8), "t": content})["t"]
    assert (found.dtype, found.shape) == (dtype, content.shape)
    assert torch.equal(found.contiguous().view(torch.uint8), content.contiguous().view(torch.uint8))


def test_shapes_and_views_come_over(arena: Arena) -> None:
    """Scalars, nothing, steps, transposes, conjugates, parameters; storages that are shared stay shared."""
    table = torch.arange(24.0).reshape(4, 6)
    complex_ = torch.view_as_complex(torch.randn(3, 2))
    state = {
        "scalar": torch.tensor(5),
        "empty": torch.empty(0, 3),
        "rows": table[1::2],
        "turned": table.t(),
        "conj": complex_.conj(),
        "imag": complex_.conj().imag,
        "parameter": torch.nn.Parameter(torch.randn(2, 2)),
        "table": table,
        "list": [torch.ones(2), {"deep": table[0]}, 5],
        "tuple": (1, "x"),
    }
    found = seen(arena, state)
    for key in list(state)[:8]:
        assert torch.equal(found[key], state[key]), key  # type: ignore[arg-type]
        assert not found[key].requires_grad
    assert torch.equal(found["list"][0], torch.ones(2))
    assert torch.equal(found["list"][1]["deep"], table[0])
    assert (found["list"][2], found["tuple"]) == (5, (1, "x"))
    found["table"][0, 0] = 77.0
    assert found["list"][1]["deep"][0] == 77.0


class Pair(torch.Tensor):
    """A tensor made of two others, by the protocol that torch has for such classes."""

    def __new__(cls, low, high):
        return torch.Tensor._make_wrapper_subclass(cls, low.shape, dtype=low.dtype)

    def __init__(self, low, high):
        self.low, self.high = low, high

    def __tensor_flatten__(self):
        return ["low", "high"], "context"

    @classmethod
    def __tensor_unflatten__(cls, inner, context, _size, _stride):
        assert context == "context"
        return cls(inner["low"], inner["high"])

    @classmethod
    def __torch_dispatch__(cls, func, *_, **__):
        raise NotImplementedError(func)


def test_a_tensor_made_of_others_comes_over(arena: Arena) -> None:
    """In its parts, of the same class."""
    found = seen(arena, {"t": Pair(torch.arange(3.0), torch.ones(3))})["t"]
    assert isinstance(found, Pair)
    assert torch.equal(found.low, torch.arange(3.0))
    assert torch.equal(found.high, torch.ones(3))


def planned(state: dict[str, Any]) -> list[Any]:
    """What torch would write of it."""
    planner = DefaultSavePlanner()
    planner.set_up_planner(state)
    return [
        (item.index, item.type, item.tensor_data.chunk, item.tensor_data.size, planner.resolve_data(item))
        for item in planner.create_local_plan().items
        if item.tensor_data is not None
    ]


@pytest.fixture
def mesh():
    """Of four ranks, of which this one is the second, with nobody to talk to."""
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=4)
    yield init_device_mesh("cpu", (2, 2))
    dist.destroy_process_group()


@pytest.mark.parametrize("placements", list(itertools.product([Shard(0), Shard(1), Replicate()], repeat=2)))
def test_a_sharded_tensor_is_written_as_from_training(
    arena: Arena, mesh: DeviceMesh, placements: tuple[Placement, ...]
) -> None:
    """Same part, same place in the whole, by a process without a mesh; also in lists, and where nothing is here."""
    content = DTensor.from_local(torch.rand(3, 4), mesh, placements, run_check=False)
    small = distribute_tensor(torch.rand(1, 4), mesh, [Shard(0), Shard(0)], src_data_rank=None)
    state = {"t": content, "list": [content, {"deep": small}]}
    found, expected = planned(seen(arena, state)), planned(state)
    assert len(found) == len(expected) == 3
    for mine, torchs in zip(found, expected, strict=True):
        assert mine[:4] == torchs[:4]
        assert torch.equal(mine[4], torchs[4])


def test_a_rank_that_holds_nothing_of_a_tensor_writes_nothing_of_it(arena: Arena, mesh: DeviceMesh) -> None:
    """A mesh of other ranks."""
    del mesh
    elsewhere = DTensor.from_local(torch.rand(2), DeviceMesh("cpu", [0, 2]), [Shard(0)], run_check=False)
    assert planned(seen(arena, {"t": elsewhere})) == planned({"t": elsewhere}) == []


def test_a_sum_that_is_not_formed_yet_is_refused(arena: Arena, mesh: DeviceMesh) -> None:
    """By name, as training's own planner would."""
    content = DTensor.from_local(torch.rand(2), mesh, [Partial(), Replicate()], run_check=False)
    with pytest.raises(ConfigError, match="partial"):
        arena.stage({"t": content})


def test_the_snapshot_is_a_copy(arena: Arena) -> None:
    """What training does afterwards is not seen."""
    content = torch.ones(1000)
    found = seen(arena, {"t": content})["t"]
    content.zero_()
    assert bool(found.all())


def test_the_same_memory_serves_all_saves(arena: Arena) -> None:
    """A second one of the same size, or a smaller one, takes no new memory; a larger one does and says so."""
    arena.stage({"a": torch.ones(5000), "b": torch.ones(100)})
    before = (arena.descriptor, arena.version, num_descriptors())
    arena.stage({"a": torch.ones(5000), "b": torch.ones(100)})
    arena.stage({"a": torch.ones(10)})
    assert (arena.descriptor, arena.version, num_descriptors()) == before
    assert bool(seen(arena, {"a": torch.ones(50_000)})["a"].all())
    assert arena.version > before[1]
    assert num_descriptors() == before[2]


def test_tied_tensors_are_held_once(arena: Arena) -> None:
    """Two names for one storage cost the memory of one."""
    tied = torch.ones(100_000)
    arena.stage({"a": tied, "b": tied, "c": tied[:5]})
    assert arena.num_bytes < 2 * tied.nbytes


def test_what_cannot_be_shared_is_named(arena: Arena) -> None:
    """Sparse tensors, and those without content."""
    with pytest.raises(ConfigError, match="sparse_coo"):
        arena.stage({"t": torch.eye(3).to_sparse()})
    with pytest.raises(ConfigError, match="meta"):
        arena.stage({"t": torch.empty(3, device="meta")})


def test_too_little_memory_is_an_error_and_not_the_end(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken at once, so that its lack is known before anything is copied; nothing stays open."""

    def refuse(*_: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    before = num_descriptors()
    with pytest.raises(OSError, match="allocate"):
        arena.stage({"t": torch.ones(10)})
    assert num_descriptors() == before


def test_tensors_are_counted_as_they_will_be_saved() -> None:
    """Through dicts and lists; a tuple is one value."""
    one = torch.ones(1)
    assert num_tensors({"a": one, "b": [one, {"c": one}], "t": (one, one), "n": 5}) == 3


def test_host_memory_is_counted_where_all_is_in_it() -> None:
    """A part of a larger tensor counts as that part. One that is elsewhere or odd, and it is not the host's alone."""
    ten, part = torch.zeros(10), torch.zeros(100)[:5]
    assert host_bytes({"a": ten, "b": [part, {"c": ten.half()}], "n": 5}) == 40 + 20 + 20
    for odd in (
        torch.zeros(10, device="meta"),
        torch.eye(3).to_sparse(),
        torch.nested.nested_tensor([ten, part]),
    ):
        assert host_bytes({"a": ten, "b": [odd]}) == 0


def test_the_question_whether_a_state_can_stand_here_lays_nothing_out(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked before each staging, on the training thread: with 100,000 tensors that would be half of the stall."""

    def place(_self: object, _value: object) -> None:
        raise AssertionError("laid out")

    state = {
        "t": {f"k{number}": torch.ones(2) for number in range(3)},
        "v": [1, torch.nn.Parameter(torch.ones(1))],
    }
    monkeypatch.setattr("rampmeter.daemon.arena._Layout.place", place)
    assert arena.why_not(state) is None


def test_no_tensor_has_more_behind_it_than_itself(arena: Arena) -> None:
    """Torch would copy it before it writes it: in the writer that was as much memory again, and all its page faults."""
    table = torch.arange(24.0).reshape(4, 6)
    found = seen(
        arena, {"odd": torch.ones(3, dtype=torch.uint8), "t": table, "part": table[1:3], "none": table[:0]}
    )
    for key, tensor in found.items():
        assert tensor.untyped_storage().nbytes() == tensor.nbytes, key
    assert torch.equal(found["part"], table[1:3])
