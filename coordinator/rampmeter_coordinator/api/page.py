"""The page at `/`: pools, writers and jobs as they are, rendered here, no script at all. Reloads itself.

What people name their jobs is text to be escaped, never markup.
"""

import hashlib
from base64 import b64encode
from collections.abc import Iterable
from html import escape

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse

from rampmeter.core.units import format_bytes, format_duration, format_rate
from rampmeter_coordinator.api.reads import engine_of
from rampmeter_coordinator.engine import Engine
from rampmeter_coordinator.model.views import JobView, LeaseView, PoolView

_MAX_ROWS = 200
_REFRESH_S = 5
_STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; }
table { border-collapse: collapse; margin: .5em 0 1.5em; width: 100%; }
th, td { text-align: left; padding: .2em 1em .2em 0; border-bottom: 1px solid #8884; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
:root { color-scheme: light dark; }
"""
_STYLE_HASH = b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

router = APIRouter(include_in_schema=False)


@router.get("/")
async def page(request: Request) -> HTMLResponse:
    """Everything at a glance."""
    engine = engine_of(request)
    body = "".join(_pool(engine, name) for name in engine.pools)
    html = (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Rampmeter</title>"
        f"<meta http-equiv=refresh content={_REFRESH_S}><style>{_STYLE}</style><h1>Rampmeter</h1>{body}"
        f"<p>Reloads every {_REFRESH_S} s. For programs: <a href=/v1/pools>/v1/pools</a>, "
        "<a href=/metrics>/metrics</a>.</p></html>"
    )
    return HTMLResponse(html, headers=_HEADERS)


def _pool(engine: Engine, name: str) -> str:
    view = engine.pool_view(name)
    leases = sorted(engine.lease_views(name), key=lambda lease: -lease.bytes_per_s)
    jobs = sorted(engine.job_views(name), key=_urgency)
    writers = _table(
        ("job", "state", "!rate", "!written", "!of", "!since"), map(_lease_row, leases[:_MAX_ROWS])
    )
    table = _table(
        ("job", "!GPUs", "!size", "!interval", "!step", "!last checkpoint", "!write time", "now"),
        map(_job_row, jobs[:_MAX_ROWS]),
    )
    more = f"<p>{len(jobs) - _MAX_ROWS} more jobs are not shown.</p>" if len(jobs) > _MAX_ROWS else ""
    return f"<h2>{escape(name)}</h2>{_summary(view)}<h3>Writers</h3>{writers}<h3>Jobs</h3>{table}{more}"


def _summary(view: PoolView) -> str:
    grace = (
        f" In grace for {format_duration(view.grace_left_s)}: only holders are served."
        if view.in_grace
        else ""
    )
    return (
        f"<p>{format_rate(view.granted_bytes_per_s)} granted, {format_rate(view.counted_bytes_per_s)} counted of "
        f"{format_rate(view.budget_bytes_per_s)} that may be granted (capacity "
        f"{format_rate(view.capacity_bytes_per_s)}); {format_rate(view.achieved_bytes_per_s)} achieved. "
        f"{_count(view.num_jobs, 'job')}, {_count(view.num_leases, 'lease')}, {view.num_waiting} waiting, "
        f"{view.num_silent} silent.{grace}</p>"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _lease_row(lease: LeaseView) -> tuple[str, ...]:
    return (
        lease.job,
        lease.state,
        format_rate(lease.bytes_per_s),
        format_bytes(lease.done_bytes),
        "" if lease.num_bytes is None else format_bytes(lease.num_bytes),
        format_duration(lease.age_s),
    )


def _job_row(job: JobView) -> tuple[str, ...]:
    return (
        job.name,
        str(job.num_gpus),
        "" if job.num_bytes is None else format_bytes(job.num_bytes),
        format_duration(job.plan.interval_s),
        str(job.step),
        "none yet" if job.commit_age_s is None else f"{format_duration(job.commit_age_s)} ago",
        "" if job.write_s is None else format_duration(job.write_s),
        _now(job),
    )


def _now(job: JobView) -> str:
    if job.finished:
        return "finished"
    if job.waiting_for_s is not None:
        return f"waiting for {format_duration(job.waiting_for_s)} ({job.wait_reason or 'queue'})"
    return ""


def _urgency(job: JobView) -> tuple[bool, bool, float]:
    return job.finished, job.waiting_for_s is None, -(job.commit_age_s or 0.0)


def _table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    classes = [" class=n" if title.startswith("!") else "" for title in titles]
    head = "".join(f"<th{c}>{escape(title.lstrip('!'))}" for c, title in zip(classes, titles, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{c}>{escape(cell)}" for c, cell in zip(classes, row, strict=True))
        for row in rows
    )
    return f"<table><tr>{head}{body}</table>" if body else "<p>None.</p>"
