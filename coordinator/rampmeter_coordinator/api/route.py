"""The route of a message: body in by the strict adapters, answer out as JSON, and the client's absence noticed.

FastAPI reads the signatures for OpenAPI; at run time this route does the work, because its own handling takes NaN and
costs several times as much as the decision.
"""

import asyncio
from collections.abc import Callable
from typing import Any, get_type_hints

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rampmeter.core.messages import RefusalReason
from rampmeter_coordinator.codec import decode
from rampmeter_coordinator.errors import Refused
from rampmeter_coordinator.model.commands import Refusal
from rampmeter_coordinator.waiters import Waiting

MAX_BODY_BYTES = 64 * 1024
CLIENT_GONE = 499
_WATCHED_AFTER_S = 0.1
"""Watching costs more than a decision; only requests that are held are worth it."""


class MessageRoute(APIRoute):
    """Calls an endpoint `(request, pool, message)` whose `message` is annotated with a message class."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
        super().__init__(path, endpoint, **more)
        self._message = get_type_hints(endpoint)["message"]

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)  # says what is allowed
            return
        request = Request(scope, receive)
        try:
            message = decode(self._message, await read_body(request))
            waiting: Waiting = await self.endpoint(request, scope["path_params"]["pool"], message)
            await unless_gone(request, waiting)
        except (ClientGone, ClientDisconnect):
            await Response(status_code=CLIENT_GONE)(scope, receive, send)
            return
        length = str(len(waiting.raw)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": waiting.raw})


class ClientGone(Exception):  # nobody catches it but the route
    """The client closed the connection before the answer."""


async def read_body(request: Request) -> bytes:
    """The body, if it is not too large; the length that the client states is not believed."""
    body = bytearray()
    more = True
    while more:
        event = await request.receive()
        if event["type"] == "http.disconnect":
            raise ClientDisconnect
        body += event.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            detail = f"a body may have at most {MAX_BODY_BYTES} bytes"
            raise Refused(Refusal(reason=RefusalReason.TOO_LARGE, status=413, detail=detail))
        more = event.get("more_body", False)
    return bytes(body)


async def unless_gone(request: Request, waiting: Waiting) -> None:
    """Return when the answer is there, or raise ClientGone: then `waiting` is cancelled, which tells the engine."""
    watch = _Watch(request.receive, waiting)
    try:
        await waiting
    except asyncio.CancelledError:
        if watch.saw_it_go:
            raise ClientGone from None
        raise
    finally:
        watch.end()


class _Watch:
    """Looks whether the client is still there, from a moment on after which most requests have been answered."""

    def __init__(self, receive: Receive, waiting: Waiting) -> None:
        self.saw_it_go = False
        self._receive = receive
        self._waiting = waiting
        self._task: asyncio.Task[None] | None = None
        self._start = asyncio.get_running_loop().call_later(_WATCHED_AFTER_S, self._begin)

    def end(self) -> None:
        self._start.cancel()
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._cancel_when_gone())

    async def _cancel_when_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.saw_it_go = True
        self._waiting.cancel()
