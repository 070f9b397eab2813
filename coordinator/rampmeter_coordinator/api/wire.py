"""The short way of a message: from the parser of the connection to the engine and back, with nothing in between.

An ASGI application costs a task, an event, a dozen middlewares and a search of all routes for each request: more than
the decision itself. Requests that are plainly a message to a process that leads have no use for that. Everything else
(other paths, methods and protocol versions, a client that does not read its answers, a process that stands by) goes
the long way, which gives the same answers: `MessageRoute.take` and `api.problem` are the same for both.

Parsing, keep-alive, the order of pipelined requests and the graceful end stay with uvicorn. Nothing is ever answered
within the call that brought the request: a client that sends a thousand bad ones at once gets one turn for each.
"""

import logging
from asyncio import Future
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from uvicorn import Config
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from rampmeter_coordinator.api import messages
from rampmeter_coordinator.api.middleware import VERSION_HEADER, speaks_our_version
from rampmeter_coordinator.api.problem import internal_error, refused_response
from rampmeter_coordinator.api.route import CLIENT_GONE, MAX_BODY_BYTES, MEDIA_TYPE, MessageRoute
from rampmeter_coordinator.errors import Refused
from rampmeter_coordinator.waiters import Waiting

_START, _ROUTES = messages.router.prefix.removesuffix("{pool}"), messages.by_path()

Headers = Iterable[tuple[bytes, bytes]]

log = logging.getLogger(__name__)


def _lines(headers: Headers) -> bytes:
    """Headers as they go over the wire."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])


_CLOSE_LINE = _lines([CLOSE_HEADER])
_ANSWER_LINES = _lines([(b"content-type", MEDIA_TYPE.encode()), VERSION_HEADER])


@dataclass(slots=True, eq=False)
class _Exchange:
    """The message that is under way on a connection."""

    cycle: RequestResponseCycle
    route: MessageRoute
    pool: str
    started_s: float
    answer: Future[Any] | None = None
    """There as soon as the message was handed in."""


class WireProtocol(HttpToolsProtocol):
    """uvicorn's protocol for one connection, with the short way. `config.app` is an application that has started."""

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any], _loop: Any
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        assert isinstance(config.app, FastAPI)
        state = config.app.state
        self._replica, self._clock, self._observe = state.replica, state.clock, state.observe
        self._exchange: _Exchange | None = None

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        exchange = self._plain_message(cycle) if app is self.app else None
        if exchange is None:
            super()._start_asgi_task(cycle, app)
            return
        self._exchange = exchange
        if not cycle.more_body:  # it came while the one before it was under way
            self.loop.call_soon(self._hand_in, exchange)

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        exchange = self._exchange
        if exchange is not None and exchange.cycle is self.cycle and len(self.cycle.body) > MAX_BODY_BYTES:
            self._hand_in(exchange)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        exchange = self._exchange
        if exchange is None:
            return
        if exchange.cycle is self.cycle:
            self._hand_in(exchange)
        elif len(self.pipeline) == 1:
            self.flow.resume_reading()  # the next request is here; if the client goes, that is to be noticed

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            if exchange.answer is not None:
                exchange.answer.cancel()
            self._count(exchange, CLIENT_GONE)

    def _plain_message(self, cycle: RequestResponseCycle) -> _Exchange | None:
        scope = cycle.scope
        start, _, rest = scope["path"].partition(_START)
        pool, _, name = rest.partition("/")
        route = _ROUTES.get(name)
        if (
            route is None
            or start
            or not pool
            or scope["method"] != "POST"
            or cycle.waiting_for_100_continue
            or self.flow.write_paused
            or self._replica.engine is None
            or not speaks_our_version(scope["headers"])
        ):
            return None
        return _Exchange(cycle, route, pool, self._clock.now())

    def _hand_in(self, exchange: _Exchange) -> None:
        if exchange is not self._exchange or exchange.answer is not None:
            return  # the client has gone, or its message was found too large before it was complete
        answer: Waiting | Future[Any]
        try:
            answer = exchange.route.take(self._replica, exchange.pool, exchange.cycle.body)
        except Exception as error:
            answer = self.loop.create_future()
            answer.set_exception(error)
        exchange.answer = answer
        answer.add_done_callback(self._answered)

    def _answered(self, answer: Future[Any]) -> None:
        error = None if answer.cancelled() else answer.exception()
        exchange = self._exchange
        if exchange is None or exchange.answer is not answer:
            return  # the client has gone
        self._exchange = None
        if error is None:
            assert isinstance(answer, Waiting)
            lines = b"%bcontent-length: %d\r\n" % (_ANSWER_LINES, len(answer.raw))
            self._send(exchange, HTTPStatus.OK, lines, answer.raw)
        else:
            self._send_problem(exchange, error)

    def _send_problem(self, exchange: _Exchange, error: BaseException) -> None:
        if isinstance(error, Refused):
            response = refused_response(error)
        else:
            log.error("unexpected error", exc_info=error)
            response = internal_error()
        headers = [*response.raw_headers, VERSION_HEADER]
        if CLOSE_HEADER in headers:
            headers.remove(CLOSE_HEADER)
            exchange.cycle.keep_alive = False  # which is said last
        self._send(exchange, response.status_code, _lines(headers), bytes(response.body))

    def _send(self, exchange: _Exchange, status: int, own: bytes, body: bytes) -> None:
        cycle = exchange.cycle
        head = _lines(self.server_state.default_headers) + own
        if not cycle.keep_alive:
            head += _CLOSE_LINE
        cycle.response_started = cycle.response_complete = True
        if not self.transport.is_closing():
            self.transport.write(b"%b%b\r\n%b" % (STATUS_LINE[status], head, body))
        if not cycle.keep_alive:
            self.transport.close()
        self._count(exchange, status)
        self.on_response_complete()

    def _count(self, exchange: _Exchange, status: int) -> None:
        self._observe(exchange.route.path, status, self._clock.now() - exchange.started_s)
