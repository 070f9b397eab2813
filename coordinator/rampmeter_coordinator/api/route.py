"""The route of a message: body in by the strict adapters, answer out as JSON, and the client's absence noticed.

FastAPI reads the signatures for OpenAPI and never calls them: its own handling takes NaN. `take` is the whole of what
a message does here; two carriers bring it. `api.wire` has it straight from the connection, where it is answered in a
quarter of the time; `handle` serves what comes through the application, after everything that surrounds it.
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
from rampmeter_coordinator.engine import Engine
from rampmeter_coordinator.errors import Refused
from rampmeter_coordinator.model.commands import Refusal
from rampmeter_coordinator.replica import Replica
from rampmeter_coordinator.waiters import Waiting

MAX_BODY_BYTES = 64 * 1024
MEDIA_TYPE = "application/json"
CLIENT_GONE = 499


class MessageRoute(APIRoute):
    """Declared by a function `(pool, message)` whose `message` is annotated with a message class."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
        super().__init__(path, endpoint, **more)
        self._message = get_type_hints(endpoint)["message"]

    def take(self, replica: Replica, pool: str, body: bytes | bytearray) -> Waiting:
        """The answer to come: await it, or cancel it when the client has gone. Raises Refused at once or later."""
        if len(body) > MAX_BODY_BYTES:
            raise too_large()
        message = decode(self._message, body)
        return leading_engine(replica).submit(pool, message, body)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)  # says what is allowed
            return
        try:
            body = await read_body(Request(scope, receive))
            waiting = self.take(scope["app"].state.replica, scope["path_params"]["pool"], body)
            await _unless_gone(receive, waiting)
        except ClientDisconnect:
            await Response(status_code=CLIENT_GONE)(scope, receive, send)
        else:
            await Response(waiting.raw, media_type=MEDIA_TYPE)(scope, receive, send)


def leading_engine(replica: Replica) -> Engine:
    """The engine that serves here. Raises Refused if the lead was lost just now."""
    engine = replica.engine
    if engine is None:
        raise replica.no_engine()
    return engine


def too_large() -> Refused:
    """The refusal of a body that nobody reads to its end."""
    detail = f"a body may have at most {MAX_BODY_BYTES} bytes"
    return Refused(Refusal(reason=RefusalReason.TOO_LARGE, status=413, detail=detail))


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
            raise too_large()
        more = event.get("more_body", False)
    return bytes(body)


async def disconnected(receive: Receive) -> None:
    """Return when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _unless_gone(receive: Receive, waiting: Waiting) -> None:
    """Return when the answer is there, or raise ClientDisconnect."""
    gone = asyncio.ensure_future(disconnected(receive))
    ends: set[asyncio.Future[Any]] = {waiting, gone}
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise ClientDisconnect
        waiting.result()
    finally:
        gone.cancel()
        waiting.cancel()  # if it is still open, that tells the engine
