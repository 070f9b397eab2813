"""A small job that may be the child of another: training with a coordinator until two saves are committed.

All that it asks goes through an HTTP client that was made in its own process: on a parent's connection each would read
the other's answers.
"""

import os
from collections.abc import Callable
from typing import Any

import httpx
import torch

import rampmeter
from rampmeter import keeper
from rampmeter.client import Client
from rampmeter.core.messages import AnyAnswer, Request
from rampmeter.events import Event, SaveEnded


class OfThisProcess(httpx.AsyncClient):
    """Knows where it was made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pid = os.getpid()


class Watched(Client):
    """Asks through nothing else."""

    async def exchange(self, request: Request) -> AnyAnswer:
        assert isinstance(self._http, OfThisProcess)
        ASKED_BY.add(self._http.pid)
        return await super().exchange(request)


ASKED_BY: set[int] = set()


def save_twice(root: str, url: str, between: Callable[[], None] = lambda: None) -> None:
    """Two saves, both with the coordinator's leave; `between` them something else of the program's."""
    httpx.AsyncClient = OfThisProcess  # type: ignore[misc]
    keeper.Client = Watched  # type: ignore[misc,attr-defined]
    ASKED_BY.clear()
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
    assert {os.getpid()} == ASKED_BY
