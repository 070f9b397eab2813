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


class Waiting(asyncio.Future[AnyAnswer]):
    """The answer to come, made by `Waiters.add`. With it comes `raw`, its JSON: encoded once, for the log and the wire
    alike.
    """

    __slots__ = ("key", "leave", "raw")
    key: Key
    leave: Callable[["Waiting"], None]
    """Hears that the client has gone."""
    raw: bytes

    def cancel(self, msg: object = None) -> bool:
        """The client has gone."""
        cancelled = super().cancel(msg)
        if cancelled:
            self.leave(self)
        return cancelled


class Waiters:
    """The waiting requests of one pool."""

    def __init__(self, on_gone: Callable[[Key], None]) -> None:
        self._on_gone = on_gone
        self._waiting: dict[Key, list[Waiting]] = {}
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: Request) -> Waiting:
        """A future for the answer to `request`."""
        waiting = Waiting(loop=self._loop)
        waiting.key = key = key_of(request)
        waiting.leave = self._leave
        others = self._waiting.get(key)
        if others is None:
            self._waiting[key] = [waiting]
        else:
            others.append(waiting)
        return waiting

    def answer(self, reply: Reply, raw: bytes) -> None:
        """Give the answer, whose JSON is `raw`, to everybody who waits for it."""
        body = reply.body
        if isinstance(body, Refusal):
            self.refuse(key_of(reply), Refused(body))
            return
        for waiting in self._waiting.pop(key_of(reply), ()):
            if not waiting.done():
                waiting.raw = raw
                waiting.set_result(body)

    def refuse(self, key: Key, error: Exception) -> None:
        """Let everybody who waits for `key` see `error`."""
        for waiting in self._waiting.pop(key, ()):
            if not waiting.done():
                waiting.set_exception(error)

    def refuse_all(self, make: Callable[[], Exception]) -> None:
        """Let everybody see an error of their own."""
        for key in list(self._waiting):
            self.refuse(key, make())

    def _leave(self, gone: Waiting) -> None:
        waiting = self._waiting.get(gone.key, [])
        if gone in waiting:
            waiting.remove(gone)
            if not waiting:
                del self._waiting[gone.key]
                self._on_gone(gone.key)
