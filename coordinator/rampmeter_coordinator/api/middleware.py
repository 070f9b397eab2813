"""What surrounds every request: the protocol version, the figures, and the last net for our own faults."""

import logging
from collections.abc import Callable, Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rampmeter.core.clock import Clock
from rampmeter.core.messages import PROTOCOL, RefusalReason
from rampmeter_coordinator.api.problem import internal_error, problem_response
from rampmeter_coordinator.model.commands import Refusal

VERSION_HEADER = (b"rampmeter-protocol", str(PROTOCOL).encode())
"""Sent with every answer."""

Observe = Callable[[str, int, float], None]
"""Told of every request: route template, status, seconds."""

log = logging.getLogger(__name__)


class Surroundings:
    """ASGI middleware: `Rampmeter-Protocol` both ways, one observation per request, no traceback to a client."""

    def __init__(self, app: ASGIApp, *, clock: Clock, observe: Observe) -> None:
        self._app = app
        self._clock = clock
        self._observe = observe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_s = self._clock.now()
        sender = _Sender(send)
        try:
            await self._serve(scope, receive, sender)
        finally:
            route = getattr(scope.get("route"), "path", "unmatched")
            self._observe(route, sender.status, self._clock.now() - started_s)

    async def _serve(self, scope: Scope, receive: Receive, sender: "_Sender") -> None:
        if not speaks_our_version(scope["headers"]):
            await _unsupported()(scope, receive, sender)
            return
        try:
            await self._app(scope, receive, sender)
        except Exception:
            log.exception("unexpected error")
            if sender.status == 0:
                await internal_error()(scope, receive, sender)


def speaks_our_version(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request with these headers can be understood; one that names no version can."""
    ours, version = VERSION_HEADER
    for name, value in headers:
        if name == ours:
            return value.strip() == version
    return True


class _Sender:
    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), VERSION_HEADER]
        await self._send(message)


def _unsupported() -> ASGIApp:
    detail = f"this coordinator speaks Rampmeter-Protocol {PROTOCOL}"
    refusal = Refusal(reason=RefusalReason.UNSUPPORTED_PROTOCOL, status=400, detail=detail)
    return problem_response(refusal)
