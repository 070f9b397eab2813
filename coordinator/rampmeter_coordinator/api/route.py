"""The route of a message: body in by the strict adapters, answer out as JSON, and the client's absence noticed.

FastAPI reads the signatures for OpenAPI; at run time this route does the work, because its own body handling takes
NaN and costs more than the decision.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, get_type_hints

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive

from rampmeter.core.messages import AnyAnswer, RefusalReason
from rampmeter_coordinator.codec import decode, encode
from rampmeter_coordinator.errors import Refused
from rampmeter_coordinator.model.commands import Refusal

MAX_BODY_BYTES = 64 * 1024
_CLIENT_GONE = 499


class ClientGone(Exception):  # nobody catches it but the route
    """The client closed the connection before the answer."""


class MessageRoute(APIRoute):
    """Calls an endpoint `(request, pool, message)` whose `message` is annotated with a message class."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        cls = get_type_hints(self.endpoint)["message"]

        async def handle(request: Request) -> Response:
            try:
                message = decode(cls, await read_body(request))
                answer = await self.endpoint(request, request.path_params["pool"], message)
            except (ClientGone, ClientDisconnect):
                return Response(status_code=_CLIENT_GONE)
            return Response(encode(answer), media_type="application/json")

        return handle


async def read_body(request: Request) -> bytes:
    """The body, if it is not too large; the length that the client states is not believed."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            detail = f"a body may have at most {MAX_BODY_BYTES} bytes"
            raise Refused(Refusal(reason=RefusalReason.TOO_LARGE, status=413, detail=detail))
    return bytes(body)


async def unless_gone(request: Request, answer: asyncio.Future[AnyAnswer]) -> AnyAnswer:
    """The answer, or ClientGone: then `answer` is cancelled, which tells the engine."""
    watch = asyncio.create_task(_cancel_when_gone(request.receive, answer))
    try:
        return await answer
    except asyncio.CancelledError:
        if watch.done():
            raise ClientGone from None
        raise
    finally:
        watch.cancel()


async def _cancel_when_gone(receive: Receive, answer: asyncio.Future[AnyAnswer]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    answer.cancel()
