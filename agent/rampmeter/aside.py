"""Calls that may block, out of the way of an event loop: each in a daemon thread of its own.

Not a thread pool: those take nothing more once the interpreter has begun to exit, when goodbye is still to be said; and
a file system that hangs must not keep the process alive.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


async def aside(function: Callable[..., T], *args: Any) -> T:
    """What `function(*args)` returns or raises, while the loop goes on."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            conclude = partial(result.set_result, function(*args))
        except Exception as error:
            conclude = partial(result.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
            loop.call_soon_threadsafe(lambda: None if result.done() else conclude())

    threading.Thread(target=run, name="rampmeter-aside", daemon=True).start()
    return await result
