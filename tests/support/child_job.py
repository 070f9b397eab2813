"""A small job that may be the child of another: training with a coordinator until two saves are committed."""

from collections.abc import Callable

import torch

import rampmeter
from rampmeter.events import Event, SaveEnded


def save_twice(root: str, url: str, between: Callable[[], None] = lambda: None) -> None:
    """Two saves, both with the coordinator's leave; `between` them something else of the program's."""
    ended: list[SaveEnded] = []
    state = {"table": torch.zeros(1000)}

    def note(event: Event) -> None:
        if isinstance(event, SaveEnded):
            ended.append(event)

    with rampmeter.Checkpointer(root, coordinator=url, interval_max_s=0.1, on_event=note) as ckpt:
        step = ckpt.restore(state) or 0
        for num_saves in (1, 2):
            while len(ended) < num_saves:
                step += 1
                state["table"].fill_(float(step))
                ckpt.step(step, state)
            if num_saves == 1:
                between()
        assert [event.reason for event in ended[:2]] == [None, None]
        assert ckpt.num_ungoverned == 0
