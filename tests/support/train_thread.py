"""A training loop with a Checkpointer in a thread of the test: every step fills the whole state with its number."""

import threading
from pathlib import Path
from typing import Any

import torch

import rampmeter
from rampmeter.events import Event, SaveEnded
from support.waiting import wait_for

STEP_S = 0.01


class TrainThread:
    """Trains from the start of the block to its end, or until it should stop. `exit_code` once it has ended."""

    def __init__(self, root: Path, url: str | None = None, *, num_values: int = 1000, **options: Any) -> None:
        self.events: list[Event] = []
        self.began_from: int | None = None
        self.exit_code: int | None = None
        self._options = {"interval_max_s": 0.5, "keep_days": 0, "coordinator": url} | options
        self._root = root
        self._state = {"table": torch.full((num_values,), -1.0)}
        self._end = threading.Event()
        self.thread = threading.Thread(target=self._train)

    def _train(self) -> None:
        with rampmeter.Checkpointer(self._root, on_event=self.events.append, **self._options) as ckpt:
            step = self.began_from = ckpt.restore(self._state) or 0
            while not self._end.wait(STEP_S) and not ckpt.should_stop:
                step += 1
                self._state["table"].fill_(step)
                ckpt.step(step, self._state)
        self.exit_code = ckpt.exit_code

    def __enter__(self) -> "TrainThread":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self.thread.join(60.0)
        assert not self.thread.is_alive()

    @property
    def saved(self) -> list[SaveEnded]:
        """What was committed, oldest first."""
        return [event for event in list(self.events) if isinstance(event, SaveEnded) and event.reason is None]

    def wait_for_saves(self, num: int) -> None:
        """So many more are committed."""
        wanted = len(self.saved) + num
        wait_for(lambda: len(self.saved) >= wanted, what=f"{num} more saves", limit_s=60.0)

    def wait_for_its_end(self) -> None:
        """It stops by itself."""
        wait_for(lambda: not self.thread.is_alive(), what="its end", limit_s=60.0)
