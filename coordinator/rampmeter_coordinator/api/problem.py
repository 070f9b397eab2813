"""Every error as RFC 9457 problem JSON: what is wrong, which field, whether to come back. Never echoes input."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from rampmeter.core.messages import RefusalReason
from rampmeter_coordinator.errors import Refused
from rampmeter_coordinator.model.commands import Refusal
from rampmeter_coordinator.model.encoding import encode

MEDIA_TYPE = "application/problem+json"
_REASONS: Mapping[int, RefusalReason] = {
    404: RefusalReason.NOT_FOUND,
    405: RefusalReason.METHOD_NOT_ALLOWED,
    413: RefusalReason.TOO_LARGE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An error. `field` is the dotted path of the field at fault; `stored_attempt` comes with `stale_attempt`."""

    type: str
    title: str
    status: int
    detail: str
    reason: RefusalReason
    field: str | None = None
    stored_attempt: int | None = None


def problem_response(
    refusal: Refusal, *, retry_after_s: int | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """The answer for a refusal."""
    problem = Problem(
        type=f"urn:rampmeter:problem:{refusal.reason}",
        title=refusal.reason.replace("_", " ").capitalize(),
        status=refusal.status,
        detail=refusal.detail,
        reason=refusal.reason,
        field=refusal.field,
        stored_attempt=refusal.stored_attempt,
    )
    all_headers = dict(headers or {})
    if retry_after_s is not None:
        all_headers["Retry-After"] = str(retry_after_s)
    return Response(encode(problem), status_code=refusal.status, headers=all_headers, media_type=MEDIA_TYPE)


def refused_response(error: Refused) -> Response:
    """The answer for a refused request. Of a body that is too large the rest is not read: the connection ends."""
    headers = {"Connection": "close"} if error.refusal.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE else None
    return problem_response(error.refusal, retry_after_s=error.retry_after_s, headers=headers)


def internal_error() -> Response:
    """The answer when the fault is ours; the log has the rest."""
    return problem_response(Refusal(reason=RefusalReason.INTERNAL, status=500, detail="an internal error"))


def add_problem_handlers(app: FastAPI) -> None:
    """Make every error of `app` a problem."""
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid_parameter)


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return refused_response(error)


async def _http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    other = (
        RefusalReason.INTERNAL if status >= HTTPStatus.INTERNAL_SERVER_ERROR else RefusalReason.BAD_REQUEST
    )
    refusal = Refusal(
        reason=_REASONS.get(status, other), status=status, detail=status.description or status.phrase
    )
    return problem_response(refusal, headers=error.headers)


async def _invalid_parameter(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = error.errors()[0]
    field = ".".join(map(str, found["loc"][1:]))
    detail = f"{field}: {found['msg']}"
    return problem_response(Refusal(reason=RefusalReason.BAD_REQUEST, status=422, detail=detail, field=field))
