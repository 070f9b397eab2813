"""The thread that flushes, and how long the end of a process waits for it.

A daemon thread, not one of a pool: Python waits for those at the end, and one that hangs in storage would keep the
process for ever. Decides when a flush is taken for hung; what follows from that is the saver's business.
"""

import concurrent.futures
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from rampmeter.core.clock import Clock, SystemClock
from rampmeter.throttle import FlowCounters

T = TypeVar("T")

HUNG_S = 6.0
"""So long without a byte, a sleep for the lease or a cycle of its own: a process that ends is gone within 10 s.

Nobody who computes is in a call into the storage at each of so many looks.
"""

_LOOK_S = 0.25
_LONGEST_LOOK_S = 2 * _LOOK_S
"""A look takes longer where the cores are busy; a process that was stopped in one blames nobody for the time."""


def in_thread_of_its_own(function: Callable[[], T]) -> "Future[T]":
    """What `function` returns or raises, while the caller goes on."""
    result: Future[T] = Future()

    def run() -> None:
        try:
            returned = function()
        except BaseException as error:  # DCP's own is none of Exception
            result.set_exception(error)
        else:
            result.set_result(returned)

    threading.Thread(target=run, name="rampmeter-flush", daemon=True).start()
    return result


def wait_while_it_moves(
    result: "Future[Any]",
    counters: Callable[[], FlowCounters],
    limit_s: float,
    *,
    is_in_storage: Callable[[], bool] = lambda: False,
    hung_s: float = HUNG_S,
    clock: Clock | None = None,
) -> bool:
    """Whether the flush has ended within `limit_s`; at once no, if it stands still in storage for `hung_s`.

    Before its first byte, and in calls without bytes, the counters do not tell a hung flush from one that looks at its
    values: `is_in_storage` does.
    """
    clock = clock or SystemClock()
    before, still_s, left_s, looked_s = counters(), 0.0, limit_s, clock.now()
    while not _has_ended(result, min(_LOOK_S, left_s)):
        left_s -= _LOOK_S
        now_s, now = clock.now(), counters()
        look_s, looked_s = min(now_s - looked_s, _LONGEST_LOOK_S), now_s
        still_s = still_s + look_s if _stands_still(before, now, is_in_storage()) else 0.0
        if left_s <= 0.0 or still_s >= hung_s:
            return False
        before = now
    return True


def _stands_still(before: FlowCounters, now: FlowCounters, is_in_storage: bool) -> bool:
    has_begun = now.busy_s + now.blocked_s + now.throttled_s > 0.0
    is_asleep = now.throttled_s > before.throttled_s
    computes = now.busy_s > before.busy_s or not has_begun
    return now.done_bytes == before.done_bytes and not is_asleep and (is_in_storage or not computes)


def _has_ended(result: "Future[Any]", limit_s: float) -> bool:
    done, _ = concurrent.futures.wait([result], timeout=limit_s)
    return bool(done)
