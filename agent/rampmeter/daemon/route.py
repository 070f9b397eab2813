"""The way of a save through a writer process, for a saver that has another through a thread of its own.

Decides which saves go this way, and owns what the two processes share. Nothing is started before the first use.
"""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from rampmeter.core.clock import Clock
from rampmeter.daemon.arena import Arena, num_tensors, why_not_shared
from rampmeter.daemon.guardian import Guardian, LostAtCommit
from rampmeter.daemon.mode import Mode, chosen
from rampmeter.daemon.parcel import Order
from rampmeter.flushthread import in_thread_of_its_own
from rampmeter.throttle import Throttle

_log = logging.getLogger("rampmeter")

_LOST_TWICE = "it was lost twice"
"""Told of by the guardian, when it was."""


class ProcessRoute:
    """One per attempt. Staging happens on the caller's thread; all else in others."""

    def __init__(self, wish: Mode, *, writer_class: type | None, num_ranks: int, clock: Clock) -> None:
        self._wish = wish
        self._writer_class = writer_class
        self._num_ranks = num_ranks
        self._arena = Arena(clock)
        self._guardian = Guardian(clock)
        self._told: str | None = None

    @property
    def last_stage_s(self) -> float:
        """How long the last staging took; 0 before the first."""
        return self._arena.last_stage_s

    def is_for(self, state: Mapping[str, Any]) -> bool:
        """Whether this snapshot goes this way."""
        count = num_tensors(state)
        if chosen(self._wish, num_tensors=count, obstacle=None) is Mode.THREAD:
            return False
        obstacle = self._obstacle(state)
        if obstacle is not None and obstacle not in (_LOST_TWICE, self._told):
            self._told = obstacle
            level = logging.WARNING if self._wish is Mode.PROCESS else logging.INFO
            _log.log(
                level, "saves are written in a thread of training, not in a process beside it: %s", obstacle
            )
        return chosen(self._wish, num_tensors=count, obstacle=obstacle) is Mode.PROCESS

    def _obstacle(self, state: Mapping[str, Any]) -> str | None:
        if self._num_ranks > 1:
            return f"the job has {self._num_ranks} ranks, which write together"
        if not hasattr(os, "memfd_create") or not sys.executable:
            return "this system has no memory to share, or no interpreter to start"
        if not self._guardian.is_usable:
            return _LOST_TWICE
        if self._writer_class is not None and self._writer_class.__module__ == "__main__":
            return f"{self._writer_class.__name__} is defined in the training script; move it into a module"
        return why_not_shared(state)

    def stage(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Copy the tensors to where the writer sees them, and have one started if there is none."""
        self._guardian.warm_up()
        return self._arena.stage(state)

    def start(
        self,
        placed: dict[str, Any],
        order: Callable[[int], Order],
        *,
        throttle: Throttle,
        on_first_byte: Callable[[int], None],
        on_committed: Callable[[], None],
    ) -> "Future[None]":
        """Have what was staged written; the future fails with what stopped it. All else happens in another thread.

        `order` is asked there, with the number of the save. `on_committed` is called before the future is done, also
        where the writer was lost at its last word: FileNotFoundError says that there is no checkpoint.
        """
        return in_thread_of_its_own(lambda: self._save(placed, order, throttle, on_first_byte, on_committed))

    def _save(
        self,
        placed: dict[str, Any],
        order: Callable[[int], Order],
        throttle: Throttle,
        on_first_byte: Callable[[int], None],
        on_committed: Callable[[], None],
    ) -> None:
        try:
            self._guardian.save(order, placed, self._arena, throttle, on_first_byte)
        except LostAtCommit as error:
            try:
                on_committed()
            except FileNotFoundError:
                raise error from None
        else:
            on_committed()

    def give_back(self) -> None:
        """The memory, until the next staging."""
        self._arena.close()

    def close(self, *, hangs: bool = False) -> None:
        """End the writer, and give the memory back. A save in flight is to be aborted before.

        One that hangs in the storage is not waited for.
        """
        if hangs:
            self._guardian.close(0.0)
        else:
            self._guardian.close()
        self.give_back()
