"""What a standby does with requests: send them to the leader and give its answers back, word for word.

Decides nothing and keeps nothing. Health and figures are the process's own. A request travels one step at most: whoever
gets a forwarded one and does not lead says so. When the leader changes, when this process stops or when the client
leaves, whatever was on its way to the old leader ends at once. While the lead is open the request waits a little and is
then sent to the new leader, under the number that it has: had the old one decided it, its answer is replayed.
"""

import asyncio
import contextlib
from typing import Any

import httpx
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rampmeter_coordinator.api.problem import problem_response
from rampmeter_coordinator.api.route import CLIENT_GONE, disconnected, read_body
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

_PATIENCE_S = 3.5
"""A lease and a poll: after that somebody leads, or nobody will soon. Shorter than any client waits."""

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

    async def answer(self, request: Request, body: bytes) -> Response | None:
        """The leader's answer, or 503 where there is none; None if meanwhile this process leads."""
        gone = asyncio.ensure_future(disconnected(request.receive))
        try:
            while True:
                if self._replica.engine is not None:
                    return None
                news = self._replica.leadership.news()
                response = await self._relay(request, body, gone)
                if response is not None:
                    return response
                if HOP in request.headers or not await self._leader_changes(news, gone):
                    return self._no_leader()
        finally:
            gone.cancel()

    async def _relay(self, request: Request, body: bytes, gone: asyncio.Task[None]) -> Response | None:
        """The leader's answer; None if nobody leads or the leader does not answer."""
        leader = self._replica.leader
        if leader is None or not leader.url or HOP in request.headers:
            return None
        answer = asyncio.ensure_future(self._send(request, leader, body))
        try:
            await _first_of(answer, gone, leader.over, self._replica.stopping)
            if gone.done():
                return Response(status_code=CLIENT_GONE)
            return _returned(answer.result()) if answer.done() else None
        except httpx.HTTPError:
            return None
        finally:
            answer.cancel()  # the leader then sees that nobody waits any more

    async def _leader_changes(self, news: asyncio.Event, gone: asyncio.Task[None]) -> bool:
        """Wait for news of who leads: they come soon, if the store answers. False if they do not."""
        if self._replica.stopping.is_set() or not self._replica.leadership.heard:
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await _first_of(gone, news, self._replica.stopping)
        return news.is_set() and not gone.done()

    def _no_leader(self) -> Response:
        refused = self._replica.no_engine()
        return problem_response(refused.refusal, retry_after_s=refused.retry_after_s)

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
        request = Request(scope, receive)
        try:
            body = await read_body(request)
            response = await scope["app"].state.forwarder.answer(request, body)
        except Refused as refused:
            response = problem_response(refused.refusal)
        except ClientDisconnect:
            response = Response(status_code=CLIENT_GONE)
        if response is None:
            await self._app(scope, _again(body, receive), send)
        else:
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


def _again(body: bytes, receive: Receive) -> Receive:
    """Receives the body that was read already, then what comes after it."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return first.pop() if first else await receive()

    return again


async def _first_of(*ends: asyncio.Future[Any] | asyncio.Event) -> None:
    """Return when the first of them has come. Futures go on, whatever happens here."""
    waits = [asyncio.ensure_future(end.wait()) for end in ends if isinstance(end, asyncio.Event)]
    futures = [end for end in ends if isinstance(end, asyncio.Future)]
    try:
        await asyncio.wait({*futures, *waits}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _returned(answer: httpx.Response) -> Response:
    headers = {name: value for name, value in answer.headers.items() if name.lower() not in _NOT_RETURNED}
    return Response(answer.content, status_code=answer.status_code, headers=headers)
