"""One thread that does one piece of work after the other for an event loop: the way to what blocks.

An executor does the same and more, and takes half as long again for each piece; here every commit is one. A piece that
nobody waits for any more is done all the same. The thread does not keep the process alive.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """Runs from the beginning until `end`. To be used from one event loop."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """What `work` gives or raises, when its turn has come. Raises RuntimeError after `end`."""
        if not self._thread.is_alive():
            raise RuntimeError(
                f"{self._thread.name}: the thread has ended, nothing can be handed in any more"
            )
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put((future, work))
        return future

    def end(self) -> None:
        """Finish what was handed in, then end."""
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            future, work = item
            try:
                result = work()
            except BaseException as error:  # whoever waits for it decides
                self._tell(future, None, error)
            else:
                self._tell(future, result, None)

    def _tell(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed before the work was done
            self._loop.call_soon_threadsafe(_settle, future, result, error)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():  # who waited has been cancelled
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
