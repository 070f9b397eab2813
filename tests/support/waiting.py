"""Waiting for conditions, with a limit: no test waits for time itself."""

import asyncio
import time
from collections.abc import Callable

LIMIT_S = 30.0


def wait_for(condition: Callable[[], object], *, what: str, limit_s: float = LIMIT_S) -> None:
    """Return when `condition` holds; fail after `limit_s`."""
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, f"waited {limit_s} s for {what}"
        time.sleep(0.01)


async def until(condition: Callable[[], object], *, what: str, limit_s: float = LIMIT_S) -> None:
    """The same without blocking the loop."""
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, f"waited {limit_s} s for {what}"
        await asyncio.sleep(0.001)


async def some_turns(count: int = 50) -> None:
    """Let the loop do everything that it could do without time passing."""
    for _ in range(count):
        await asyncio.sleep(0)
