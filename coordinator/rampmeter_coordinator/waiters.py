"""Who waits for which answer: futures by (job_uid, attempt, seq). Several connections may wait for the same one.

A future that its owner cancels means that the client has gone; when the last one of a request goes, `on_gone` hears
of it, so that the ledger stops keeping a place for somebody who is not there.
"""

import asyncio
from collections.abc import Callable

from rampmeter.core.messages import AnyAnswer, Request
from rampmeter_coordinator.errors import Refused
from rampmeter_coordinator.model.commands import Refusal, Reply

Key = tuple[str, int, int]


def key_of(message: Request | Reply) -> Key:
    """What tells one request from all others, and its reply."""
    return message.job_uid, message.attempt, message.seq


class Waiters:
    """The waiting requests of one pool."""

    def __init__(self, on_gone: Callable[[Key], None]) -> None:
        self._on_gone = on_gone
        self._futures: dict[Key, list[asyncio.Future[AnyAnswer]]] = {}

    def __len__(self) -> int:
        return len(self._futures)

    def add(self, request: Request) -> asyncio.Future[AnyAnswer]:
        """A future for the answer to `request`."""
        key = key_of(request)
        future: asyncio.Future[AnyAnswer] = asyncio.get_running_loop().create_future()
        self._futures.setdefault(key, []).append(future)
        future.add_done_callback(lambda done: self._leave(key, done))
        return future

    def answer(self, key: Key, body: AnyAnswer | Refusal) -> None:
        """Give `body` to everybody who waits for `key`."""
        if isinstance(body, Refusal):
            self.refuse(key, Refused(body))
            return
        for future in self._futures.pop(key, ()):
            if not future.done():
                future.set_result(body)

    def refuse(self, key: Key, error: Exception) -> None:
        """Let everybody who waits for `key` see `error`."""
        for future in self._futures.pop(key, ()):
            if not future.done():
                future.set_exception(error)

    def refuse_all(self, make: Callable[[], Exception]) -> None:
        """Let everybody see an error of their own."""
        for key in list(self._futures):
            self.refuse(key, make())

    def _leave(self, key: Key, future: asyncio.Future[AnyAnswer]) -> None:
        if not future.cancelled():
            return
        waiting = self._futures.get(key, [])
        if future in waiting:
            waiting.remove(future)
            if not waiting:
                del self._futures[key]
                self._on_gone(key)
