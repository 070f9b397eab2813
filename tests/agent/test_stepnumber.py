"""What counts as the number of a step; what does not saves nothing, raises nothing, and is told of once."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rampmeter
from rampmeter.core.fields import MAX_COUNT
from rampmeter.events import Event, SaveEnded
from rampmeter.stepnumber import StepNumbers
from support.waiting import wait_for

ODD = ["300", None, 7.5, float("nan"), -1, MAX_COUNT + 1, 10**300, torch.ones(2), [3]]


@pytest.mark.parametrize("step", [7, np.int64(7), np.uint8(7), torch.tensor(7), torch.tensor([7]), 7.0])
def test_whatever_counts_is_a_number(step: Any) -> None:
    """As an int, which is what a manifest holds."""
    number = StepNumbers().of(step)
    assert (number, type(number)) == (7, int)


@pytest.mark.parametrize("step", ODD, ids=str)
def test_what_is_none_is_told_of_once(step: Any, caplog: pytest.LogCaptureFixture) -> None:
    """And no error, whatever it is."""
    numbers = StepNumbers()
    assert [numbers.of(step), numbers.of(step), numbers.of(3)] == [None, None, 3]
    (record,) = caplog.records
    assert (record.levelno, "no number of a step" in record.getMessage()) == (logging.ERROR, True)


def test_saves_go_on_after_calls_without_a_number(tmp_path: Path) -> None:
    """Odd ones while a save is due do no harm to those that follow, nor to the end."""
    events: list[Event] = []
    state = {"weights": torch.ones(10)}
    with rampmeter.Checkpointer(tmp_path, on_event=events.append, interval_max_s=0.01, seed=1) as ckpt:
        ckpt.restore(state)

        def saved_with(*steps: Any) -> bool:
            for step in steps:
                ckpt.step(step, state)
            return any(isinstance(event, SaveEnded) for event in events)

        for _ in range(3):
            assert not saved_with(*ODD)
        wait_for(lambda: saved_with(np.int64(7)), what="a save")
    ended = [event for event in events if isinstance(event, SaveEnded)]
    assert {(event.step, event.reason) for event in ended} == {(7, None)}


def test_an_interrupt_in_the_snapshot_is_trainings_and_ends_that_save_alone(tmp_path: Path) -> None:
    """Ctrl-C in a `state_dict`, in a loop that catches it: the next save is made as if nothing had been."""
    events: list[Event] = []
    interrupts = [KeyboardInterrupt()]

    class Interrupted:
        def state_dict(self) -> dict[str, int]:
            if interrupts:
                raise interrupts.pop()
            return {"value": 1}

        def load_state_dict(self, state: dict[str, int]) -> None: ...

    state = {"part": Interrupted()}
    num_interrupted = 0
    with rampmeter.Checkpointer(tmp_path, on_event=events.append, interval_max_s=0.01, seed=1) as ckpt:
        ckpt._started.is_sized = True  # the state is asked for in saves alone

        def saved() -> bool:
            nonlocal num_interrupted
            try:
                ckpt.step(1, state)
            except KeyboardInterrupt:
                num_interrupted += 1
            return any(isinstance(event, SaveEnded) and event.reason is None for event in events)

        wait_for(saved, what="a save after the interrupt")
        assert ckpt._started._settled.wait(10.0)
    assert num_interrupted == 1
