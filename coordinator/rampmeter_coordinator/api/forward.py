"""What a standby does with requests: send them to the leader and give its answers back, word for word.

Decides nothing and keeps nothing. Health and figures are the process's own. A request travels one step at most: whoever
gets a forwarded one and does not lead says so. When the leader changes, when this process stops or when the client
leaves, whatever was on its way to the old leader ends at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpx
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from rampmeter_coordinator.api.problem import problem_response
from rampmeter_coordinator.api.route import CLIENT_GONE, read_body
from rampmeter_coordinator.errors import Refused
from rampmeter_coordinator.leadership import OtherLeader
from rampmeter_coordinator.replica import Replica

HOP = "Rampmeter-Forwarded"
_OWN_PATHS = ("/livez", "/readyz", "/metrics", "/openapi.json")
_SENT = ("content-type", "accept", "rampmeter-protocol")
_NOT_RETURNED = frozenset(
    {
        "connection",
        "content-encoding",
        "content-length",
        "date",
        "keep-alive",
        "rampmeter-protocol",
        "server",
        "transfer-encoding",
    }
)
_TIMEOUT = httpx.Timeout(35.0, connect=1.0)
"""Slot requests are held for up to 25 s."""

_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=60.0)


class Forwarder:
    """Holds the connections to the leader."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._http = httpx.AsyncClient(
            timeout=_TIMEOUT, limits=_LIMITS, trust_env=False, follow_redirects=False
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def answer(self, request: Request) -> Response:
        """The leader's answer, or 503 where there is none."""
        try:
            leader = self._replica.leader
            if leader is None or not leader.url or HOP in request.headers or self._replica.stopping.is_set():
                raise self._replica.no_engine()
            return await self._relay(request, leader, await read_body(request))
        except Refused as refused:
            return problem_response(refused.refusal, retry_after_s=refused.retry_after_s)
        except ClientDisconnect:
            return Response(status_code=CLIENT_GONE)

    async def _relay(self, request: Request, leader: OtherLeader, body: bytes) -> Response:
        answer = asyncio.ensure_future(self._send(request, leader, body))
        gone = asyncio.ensure_future(_disconnected(request.receive))
        ends: list[Awaitable[Any]] = [leader.over.wait(), self._replica.stopping.wait()]
        others = [gone, *map(asyncio.ensure_future, ends)]
        try:
            await asyncio.wait({answer, *others}, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return _returned(answer.result())
            if gone.done():
                return Response(status_code=CLIENT_GONE)
            raise self._replica.no_engine()
        except httpx.HTTPError:
            raise self._replica.no_engine() from None
        finally:
            for task in (answer, *others):
                task.cancel()

    async def _send(self, request: Request, leader: OtherLeader, body: bytes) -> httpx.Response:
        headers = {name: request.headers[name] for name in _SENT if name in request.headers}
        target = request.scope["raw_path"]
        if request.scope["query_string"]:
            target += b"?" + request.scope["query_string"]
        return await self._http.request(
            request.method,
            httpx.URL(leader.url).copy_with(raw_path=target),
            content=body,
            headers=headers | {HOP: "1"},
        )


class Forwarding:
    """ASGI middleware: what this process cannot answer itself goes to `app.state.forwarder`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _is_own(scope):
            await self._app(scope, receive, send)
            return
        _name_route(scope)
        response = await scope["app"].state.forwarder.answer(Request(scope, receive))
        await response(scope, receive, send)


def _is_own(scope: Scope) -> bool:
    replica: Replica = scope["app"].state.replica
    return replica.engine is not None or scope["path"] in _OWN_PATHS


def _name_route(scope: Scope) -> None:
    """The route that the leader will find: the figures count by its template."""
    for route in scope["app"].routes:
        if route.matches(scope)[0] is Match.FULL:
            scope["route"] = route
            return


async def _disconnected(receive: Callable[[], Awaitable[Mapping[str, Any]]] | Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _returned(answer: httpx.Response) -> Response:
    headers = {name: value for name, value in answer.headers.items() if name.lower() not in _NOT_RETURNED}
    return Response(answer.content, status_code=answer.status_code, headers=headers)
