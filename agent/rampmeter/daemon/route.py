"""The way of a save through a writer process, for a saver that has others through its own threads.

Owns what the two processes share. Nothing is started before the first use.
"""

import os
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from rampmeter.core.clock import Clock
from rampmeter.daemon.arena import Arena, why_not_shared
from rampmeter.daemon.guardian import Guardian
from rampmeter.daemon.parcel import Order
from rampmeter.throttle import Throttle


class ProcessRoute:
    """One per attempt. Staging happens on the caller's thread; all else in others."""

    def __init__(self, clock: Clock) -> None:
        self._arena = Arena(clock)
        self._guardian = Guardian(clock)

    @property
    def last_stage_s(self) -> float:
        """How long the last staging took; 0 before the first."""
        return self._arena.last_stage_s

    def obstacle(self, state: Mapping[str, Any], writer_class: type | None) -> str | None:
        """Why this snapshot cannot go this way; None if it can."""
        if not hasattr(os, "memfd_create") or not sys.executable:
            return "this system has no memory to share, or no interpreter to start"
        if not self._guardian.is_usable:
            return "the process for it was lost twice"
        if writer_class is not None and writer_class.__module__ == "__main__":
            return f"{writer_class.__name__} is defined in the training script: move it into a module"
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
    ) -> "Future[None]":
        """Have what was staged written; `order` is asked in another thread. The future fails with what stopped it."""
        result: Future[None] = Future()

        def run() -> None:
            try:
                self._guardian.save(order, placed, self._arena, throttle, on_first_byte)
            except BaseException as error:
                result.set_exception(error)
            else:
                result.set_result(None)

        threading.Thread(target=run, name="rampmeter-flush", daemon=True).start()
        return result

    def close(self) -> None:
        """End the writer, and give the memory back. A save in flight is to be aborted before."""
        self._guardian.close()
        self._arena.close()
