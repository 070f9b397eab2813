"""Saves with a norm check: finite states that are lost are refused, and the next good one is saved."""

import itertools
import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import rampmeter
from rampmeter import restore as restoring
from rampmeter.core.errors import ConfigError
from rampmeter.core.messages import FailReason
from rampmeter.daemon.mode import Mode
from rampmeter.dcp import planning
from rampmeter.events import SaveEnded
from rampmeter.layout import Root
from rampmeter.manifest import read_manifest
from rampmeter.tensornorm import norm_of
from support.forked_job import Job, Parent, starting
from support.rank_programs import Ranks
from support.roots import steps_in
from support.servers import listening
from support.waiting import wait_for

LIMIT_S = 200.0
RATIO = 4.0


def weights(size: float) -> dict[str, Any]:
    """One key whose norm is ten times that."""
    return {"w": torch.full((100,), size)}


def recorded(root: Root, report: Any) -> dict[str, float]:
    manifest = read_manifest(root.path / report.directory)
    assert manifest.norms is not None
    return {part.key: part.norm for part in manifest.norms}


@pytest.mark.parametrize("mode", [Mode.THREAD, Mode.PROCESS])
def test_a_jump_is_refused_and_what_comes_after_it_is_measured_by_the_last_commit(
    root: Root, make_saver: Any, save: Any, caplog: pytest.LogCaptureFixture, mode: Mode
) -> None:
    """In a thread and in a process: refused again and again, saved when it is near again; nothing is left behind."""
    saver = make_saver(max_norm_ratio=RATIO, mode=mode)
    sizes = [1.0, 3.9, 16.0, 16.0, 0.9, 15.0, 3.0]
    reports = [save(saver, step, weights(size)) for step, size in enumerate(sizes, 1)]
    jump = FailReason.NORM_JUMP
    assert [report.reason for report in reports] == [None, None, jump, jump, jump, None, jump]
    assert recorded(root, reports[5]) == {"w": pytest.approx(150.0)}
    assert root.step_names() == root.committed_steps()
    said = [record.getMessage() for record in caplog.records if "not saved (norm_jump" in record.getMessage()]
    assert len(said) == 4
    for part in ("step 3 was not saved", "state['w'] is 160 and was 39 in step 2", "larger max_norm_ratio"):
        assert part in said[0], part


def test_after_a_checkpoint_without_norms_they_are_recorded_only(
    root: Root, make_saver: Any, save: Any
) -> None:
    """One that was saved without the check says nothing to compare with; from the next one on there is."""
    first = save(make_saver(), 1, weights(1.0))
    assert read_manifest(root.path / first.directory).norms is None
    found = restoring.restore(root, weights(0.0))
    assert found is not None
    saver = make_saver(max_norm_ratio=RATIO)
    saver.go_on_from(root.committed_steps()[0], found.norms)
    assert recorded(root, save(saver, 2, weights(100.0))) == {"w": pytest.approx(1000.0)}
    assert save(saver, 3, weights(1.0)).reason is FailReason.NORM_JUMP


def test_switched_off_no_norm_is_computed(
    make_saver: Any, save: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It costs nothing; switched on it is computed once a tensor, and not in training's thread."""
    threads: list[threading.Thread] = []

    def counted(tensor: torch.Tensor) -> float | None:
        threads.append(threading.current_thread())
        return norm_of(tensor)

    monkeypatch.setattr(planning, "norm_of", counted)
    assert save(make_saver(), 1, weights(1.0)).committed
    assert threads == []
    saver = make_saver(max_norm_ratio=RATIO)
    saver.warm_up(weights(1.0))
    assert save(saver, 2, weights(1.0) | {"more": torch.ones(3), "number": torch.arange(3)}).committed
    assert len(threads) == 3
    assert threading.main_thread() not in threads


def test_weights_do_not_hide_behind_moments_and_moments_are_not_compared(
    root: Root, make_saver: Any, make_run: Any, save: Any
) -> None:
    """Each key has its norm; optimizers change tenfold when gradients do; counts of steps are no part of any norm."""
    run, saver = make_run(), make_saver(max_norm_ratio=RATIO)
    run.train(2)
    found = recorded(root, save(saver, 1, run.state))
    moments = [state["exp_avg"] for state in run.optim.state.values()]
    moments += [state["exp_avg_sq"] for state in run.optim.state.values()]
    tensors = [tensor for tensor in run.model.state_dict().values() if tensor.dim()]
    assert found["model"] == pytest.approx(math.hypot(*(float(t.norm()) for t in tensors)))
    assert found["optim"] == pytest.approx(math.hypot(*(float(t.norm()) for t in moments)), rel=1e-5)

    for moment in moments:
        moment.mul_(1e6)
    assert save(saver, 2, run.state).committed
    with torch.no_grad():
        run.model[0].weight.mul_(100.0)
    assert save(saver, 3, run.state).reason is FailReason.NORM_JUMP


def test_values_that_are_meant_not_to_be_finite_take_their_tensor_out(
    root: Root, make_saver: Any, save: Any
) -> None:
    """With check_finite=False: a mask of infinities neither fails the save nor hides the weights beside it."""
    saver = make_saver(max_norm_ratio=RATIO, check_finite=False)
    mask = torch.full((4,), -math.inf)
    model = {"model": {"w": torch.ones(100), "mask": mask}}
    assert recorded(root, save(saver, 1, model)) == {"model": pytest.approx(10.0)}
    assert save(saver, 2, {"model": {"w": torch.full((100,), 50.0), "mask": mask}}).reason == "norm_jump"


# -- as a training script has it -------------------------------------------------------------------------------


def train_until(ckpt: rampmeter.Checkpointer, state: dict[str, Any], step: int, is_done: Any) -> int:
    """The step at which it was."""
    steps = itertools.count(step + 1)

    def train_one() -> Any:
        ckpt.step(next(steps), state)
        return is_done()

    wait_for(train_one, what="what training waits for", limit_s=LIMIT_S)
    return next(steps)


def test_a_checkpointer_refuses_goes_on_and_compares_with_what_it_restored(tmp_path: Path) -> None:
    """The reason is in events; after a rollback by name the parent is the restored one, not the newest."""
    ended: list[SaveEnded] = []
    options: dict[str, Any] = {
        "max_norm_ratio": RATIO,
        "interval_max_s": 0.05,
        "keep": 100,
        "on_event": lambda event: isinstance(event, SaveEnded) and ended.append(event),
    }
    state = weights(1.0)
    reasons = lambda: [event.reason for event in ended]  # noqa: E731
    with rampmeter.Checkpointer(tmp_path, **options) as ckpt:
        assert ckpt.restore(state) is None
        step = train_until(ckpt, state, 0, lambda: len(ended) >= 1)
        state["w"].fill_(3.0)
        step = train_until(ckpt, state, step, lambda: len(ended) >= 3)
        state["w"].fill_(13.0)
        train_until(ckpt, state, step, lambda: FailReason.NORM_JUMP in reasons())
    assert set(reasons()[:3]) == {None}
    first = ended[0].step
    assert steps_in(Root(tmp_path))[-1] == first

    ended.clear()
    state = weights(0.0)
    with rampmeter.Checkpointer(tmp_path, **options) as ckpt:
        assert ckpt.restore(state, step=first) == first
        assert float(state["w"][0]) == 1.0
        state["w"].fill_(5.0)
        train_until(ckpt, state, first, lambda: len(ended) >= 2)
    assert set(reasons()) == {FailReason.NORM_JUMP}


@pytest.mark.parametrize("ratio", [1.0, math.inf, True])
def test_a_bad_ratio_is_refused_at_the_start(tmp_path: Path, ratio: Any) -> None:
    """By its name, before anything is touched."""
    with pytest.raises(ConfigError, match="max_norm_ratio"):
        rampmeter.Checkpointer(tmp_path / "root", max_norm_ratio=ratio)
    assert not (tmp_path / "root").exists()


# -- many ranks ------------------------------------------------------------------------------------------------

NORMS = """
import torch
import torch.distributed.checkpoint as plain
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from rampmeter import dcp
from rampmeter.course import Alone
from rampmeter.throttle import Throttle

mesh = init_device_mesh("cpu", (world_size,))
whole = lambda *size: torch.randn(*size, generator=torch.Generator().manual_seed(len(size)))
state = {
    "sharded": {"uneven": distribute_tensor(whole(7, 3), mesh, [Shard(0)])},
    "equal": {"tensor": whole(50), "dtensor": distribute_tensor(whole(5, 5, 5), mesh, [Replicate()])},
    "count": torch.tensor(1e6),
    "rampmeter": {"lead": [("equal", "tensor")]},
}
found = []
throttle = Throttle()
throttle.set_rate(None)
writer = dcp.metered_writer(
    root.path / str(world_size),
    throttle=throttle,
    finish=lambda written, unchecked, norms: found.extend(norms),
    course=Alone(),
    on_first_byte=lambda num_bytes: None,
)
planner = dcp.CheckedSavePlanner(with_norms=True)
plain.save(state, storage_writer=writer, planner=planner, process_group=group)
answer = {part.key: part.norm for part in found}
"""


def test_the_norm_of_two_ranks_is_that_of_one(ranks: Ranks, tmp_path: Path) -> None:
    """Shards once each, and what all ranks hold once; rank 0 alone hears it."""
    (alone,) = ranks.answers(1, tmp_path, NORMS)
    for num_ranks in (2, 3):
        together, *others = ranks.answers(num_ranks, tmp_path, NORMS)
        assert together == pytest.approx(alone, rel=1e-12)
        assert others == [{}] * (num_ranks - 1)
    whole = {
        size: torch.randn(*size, generator=torch.Generator().manual_seed(len(size)))
        for size in ((7, 3), (50,), (5, 5, 5))
    }
    assert alone == {
        "sharded": pytest.approx(float(whole[7, 3].norm())),
        "equal": pytest.approx(math.hypot(float(whole[50,].norm()), float(whole[5, 5, 5].norm()))),
    }


@pytest.fixture(scope="module")
def parent() -> Iterator[Parent]:
    with listening("support.crew_job") as process:
        yield process


@pytest.fixture
def start(parent: Parent, tmp_path: Path) -> Iterator[Callable[..., Job]]:
    with starting(parent, tmp_path / "group") as begin:
        yield begin


def test_a_jump_fails_the_save_of_all_ranks(start: Callable[..., Job], root: Root) -> None:
    """The tensors of this job grow with its steps: once the last commit is too far behind all ranks say why."""
    job = start(
        2,
        root=str(root.path),
        num_floats=1000,
        options={"interval_max_s": 0.05, "keep": 1000, "max_norm_ratio": 1.01},
    )
    refused = [job.wait("saved", rank=rank, reason="norm_jump")["step"] for rank in range(2)]
    job.finish()
    job.end()
    assert job.codes() == [0, 0]
    assert refused[0] == refused[1]
    committed = {said["step"] for said in job.find("saved", rank=0, committed=True)}
    assert {name.step for name in root.committed_steps()} == committed != set()
    assert refused[0] not in {name.step for name in root.step_names()}
