"""No checkpoint is torn: whatever training writes into its tensors from the moment on in which `step` has returned."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import rampmeter
from rampmeter.events import Event, SaveEnded, SaveStarted
from rampmeter.layout import Root
from rampmeter.restore import restore
from support.processes import written_bytes

NUM_SAVES = 50
OFTEN = {"interval_max_s": 0.01, "seed": 1}


def make_state() -> dict[str, Any]:
    """Parameters, moments, a buffer, views of one storage, plain values."""
    model = nn.Sequential(nn.Linear(128, 128), nn.BatchNorm1d(128))
    optimizer = torch.optim.Adam(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    table = torch.zeros(64, 64)
    return {"model": model, "optimizer": optimizer, "table": table, "rows": table[::2], "numbers": [0, 0]}


def tensors_of(state: dict[str, Any]) -> list[torch.Tensor]:
    """All that is written into."""
    moments = [t for s in state["optimizer"].state.values() for t in s.values()]
    floats = [t for t in state["model"].state_dict().values() if t.is_floating_point()]
    return [*floats, *moments, state["table"]]


def size_bytes(state: dict[str, Any]) -> int:
    """Of all that is written into."""
    return sum(tensor.nbytes for tensor in tensors_of(state))


def fill(state: dict[str, Any], value: float) -> None:
    """Every value of the state is `value`."""
    with torch.no_grad():
        for tensor in tensors_of(state):
            tensor.fill_(value)
    state["numbers"][:] = [value, value]


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_c64_fifty_saves_under_a_tight_loop_of_changes_hold_one_step_each(tmp_path: Path, mode: str) -> None:
    """Changed again and again from right after `step` until the save has ended; halves are of no step.

    In the mode `process` it is one writer process beside this one that has written all of them.
    """
    events: list[Event] = []
    state = make_state()
    options = OFTEN | {"mode": mode, "keep": 2 * NUM_SAVES}
    with rampmeter.Checkpointer(tmp_path, on_event=events.append, **options) as ckpt:  # type: ignore[arg-type]
        step, num_begun = 0, 0
        fill(state, 0)
        ckpt.restore(state)
        while num_begun < NUM_SAVES:
            step += 1
            fill(state, step)
            ckpt.step(step, state)
            begun = sum(isinstance(event, SaveStarted) for event in list(events))
            if begun == num_begun:
                time.sleep(0.005)  # the tight loop is the one below; until a save is due others may compute
                continue
            num_begun = begun
            while sum(isinstance(event, SaveEnded) for event in list(events)) < begun:
                fill(state, step + 0.5)
        writer = ckpt._saver._route._guardian.pid
        beside_bytes = 0 if writer is None else written_bytes(writer)
    ended = [event for event in events if isinstance(event, SaveEnded)]
    assert {event.reason for event in ended} == {None}
    assert len(ended) == NUM_SAVES
    if mode == "process":
        assert beside_bytes >= NUM_SAVES * size_bytes(state)
    else:
        assert writer is None
    for event in ended:
        restored = make_state()
        restore(Root(tmp_path), restored, step=event.step)
        values = {float(value) for tensor in tensors_of(restored) for value in tensor.unique()}
        assert values == {float(event.step)}
        assert restored["numbers"] == [event.step, event.step]
        assert torch.equal(restored["rows"], restored["table"][::2])
