"""One request to the coordinator and its answer, over HTTP. Knows the wire, decides nothing.

Every failure comes out as one of ours: CoordinatorUnavailable (no answer, time-out, 5xx), RequestRefused and
StaleAttempt (4xx problem JSON), ProtocolError (an answer that is not ours).
"""

import json
from types import TracebackType
from typing import Self
from urllib.parse import quote

import httpx

from rampmeter.core.decode import decode_answer, encode
from rampmeter.core.errors import CoordinatorUnavailable, ProtocolError, RequestRefused, StaleAttempt
from rampmeter.core.messages import (
    PROTOCOL,
    AnyAnswer,
    Finish,
    Heartbeat,
    Ready,
    RefusalReason,
    Register,
    Release,
    Renew,
    Request,
    SlotRequest,
)

_PATHS: dict[type[Request], str] = {
    Register: "jobs/register",
    Heartbeat: "jobs/heartbeat",
    Finish: "jobs/finish",
    SlotRequest: "slots",
    Ready: "leases/ready",
    Renew: "leases/renew",
    Release: "leases/release",
}
_LONGEST_HOLD_S: dict[type[Request], float] = {SlotRequest: 25.0, Renew: 5.0}
_SLACK_S = 5.0
"""What an answer may take beyond the time that the coordinator may hold the request."""

_MAX_ANSWER_BYTES = 64 * 1024
_MAX_DETAIL_CHARS = 300
_LONGEST_RETRY_S = 600.0


class Client:
    """An HTTP client for one pool of one coordinator. Made and used inside one event loop."""

    def __init__(self, url: str, pool: str, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._http = httpx.AsyncClient(
            base_url=f"{url.rstrip('/')}/v1/pools/{quote(pool, safe='')}/",
            headers={"Rampmeter-Protocol": str(PROTOCOL), "Content-Type": "application/json"},
            transport=transport,
            # Below the server's keep-alive: a connection that the server is just closing is never reused.
            limits=httpx.Limits(max_connections=4, max_keepalive_connections=2, keepalive_expiry=60.0),
            follow_redirects=False,
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def exchange(self, request: Request) -> AnyAnswer:
        """Send `request`, wait for its answer as long as the coordinator may hold it."""
        kind = type(request)
        limit_s = _LONGEST_HOLD_S.get(kind, 0.0) + _SLACK_S
        timeout = httpx.Timeout(limit_s, connect=_SLACK_S)
        try:
            response = await self._http.post(_PATHS[kind], content=encode(request), timeout=timeout)
        except Exception as error:  # not only HTTPError: httpx lets through what a look-up of the host raises
            raise CoordinatorUnavailable(f"{kind.__name__}: {type(error).__name__}: {error}") from error
        if response.status_code == httpx.codes.OK:
            return _answer(request, response.content)
        raise _problem(response)


def _answer(request: Request, body: bytes) -> AnyAnswer:
    if len(body) > _MAX_ANSWER_BYTES:
        raise ProtocolError(f"the answer has {len(body)} bytes, more than any answer of this protocol")
    answer = decode_answer(body)
    if answer.seq != request.seq:
        raise ProtocolError(f"seq: the answer to request {request.seq} says {answer.seq}")
    return answer


def _problem(response: httpx.Response) -> Exception:
    """The error of a response that is no answer."""
    fields = _problem_fields(response)
    detail = str(fields.get("detail", response.reason_phrase))[:_MAX_DETAIL_CHARS]
    message = f"{response.status_code} {detail}"
    if response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
        return CoordinatorUnavailable(message, retry_after_s=_retry_after(response))
    reason = str(fields.get("reason", "unknown"))
    stored = fields.get("stored_attempt")
    if reason == RefusalReason.STALE_ATTEMPT and type(stored) is int:
        return StaleAttempt(message, status=response.status_code, reason=reason, stored_attempt=stored)
    field = fields.get("field")
    return RequestRefused(
        message, status=response.status_code, reason=reason, field=field if isinstance(field, str) else None
    )


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds, if the header has a sane number of them."""
    text = response.headers.get("Retry-After", "")
    return min(float(text), _LONGEST_RETRY_S) if text.isdecimal() else None


def _problem_fields(response: httpx.Response) -> dict[str, object]:
    try:
        fields = json.loads(response.content[:_MAX_ANSWER_BYTES])
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}
