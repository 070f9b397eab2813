"""Watches over a flush in a thread of this process: one that hangs in the storage is given up, as in another process.

The thread itself stays in the call until the storage lets it go, and then writes nothing more; its lease must not wait
for that. Decides nothing about a lease, and ends no thread.
"""

import math
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from rampmeter.core.clock import Clock
from rampmeter.daemon import watch
from rampmeter.flushthread import wait_while_it_moves
from rampmeter.inflight import Save


def watch_over(flush: "Future[Any]", save: Save, clock: Clock, on_hung: Callable[[str], object]) -> None:
    """Call `on_hung` with why, from a thread of its own, if the flush stands still for as long as a writer may."""
    limit_s = watch.STANDSTILL_S

    def run() -> None:
        if not moves(flush, save, clock, limit_s=math.inf, hung_s=limit_s):
            on_hung(f"wrote nothing for {limit_s:.0f} s although it may: the storage hangs")

    threading.Thread(target=run, name="rampmeter-standstill", daemon=True).start()


def moves(flush: "Future[Any]", save: Save, clock: Clock, *, limit_s: float, hung_s: float) -> bool:
    """Whether it has ended within `limit_s`; at once no, if it stands still in storage for `hung_s`."""
    return wait_while_it_moves(
        flush,
        lambda: save.pulse(clock),
        limit_s,
        is_in_storage=lambda: save.throttle.is_in_storage,
        hung_s=hung_s,
        clock=clock,
    )
