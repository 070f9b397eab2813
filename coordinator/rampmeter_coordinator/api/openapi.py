"""The OpenAPI document, corrected where FastAPI's default says something else than the code does.

Errors are problems, everywhere; optional fields may be absent but are never null, so their schemas have no default.
"""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from rampmeter_coordinator.api.problem import MEDIA_TYPE, Problem
from rampmeter_coordinator.codec import adapter

_CONTENT = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
_MEANINGS = {
    400: "unsupported Rampmeter-Protocol",
    404: "unknown pool, or a job that has to register first",
    409: "stale attempt, foreign lease, or an overtaken request",
    413: "body too large",
    422: "a field is missing or has a value that is not allowed; `field` names it",
    503: "overloaded, draining, or the store keeps no commits; see Retry-After",
}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"description": meaning, "content": _CONTENT} for status, meaning in _MEANINGS.items()
}


def only(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems that a route may answer."""
    return {status: PROBLEMS[status] for status in statuses}


def set_openapi(app: FastAPI) -> None:
    """Let `app` publish the corrected document."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _build(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # the way FastAPI documents


def _build(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    problem = adapter(Problem).json_schema(ref_template="#/components/schemas/{model}")
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas |= problem.pop("$defs", {})
    schemas["Problem"] = problem
    _drop_null_defaults(document)
    return document


def _drop_null_defaults(node: Any) -> None:
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for child in children:
        _drop_null_defaults(child)
    if isinstance(node, dict) and "default" in node and node["default"] is None:
        del node["default"]
