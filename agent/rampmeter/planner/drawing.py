"""The sweep as text: one bar per interval, the three causes of loss stacked in it."""

from rampmeter.core.interval import EXACT_FROM
from rampmeter.core.messages import PlanReason
from rampmeter.planner.findings import Findings
from rampmeter.planner.sweep import Point
from rampmeter.planner.text import paragraph, percent, span, table

_BAR = 40
_FILL = {"write": "█", "rework": "▒", "restart": "░"}
PLAIN_FILL = str.maketrans("".join(_FILL.values()), "#=.")
"""For terminals without Unicode."""

_HIGHEST = 1.0


def chart(findings: Findings) -> str:
    """Bars; the longest is the worst interval that still leaves something."""
    if not findings.sweep:
        return ""
    scale = max(min(_HIGHEST, point.waste.total) for point in findings.sweep)
    rows = [[span(point.interval_s), *_row(point, scale)] for point in findings.sweep]
    head = ["lost", "█ writing  ▒ redoing  ░ restarting".ljust(_BAR), ""]
    parts = (table("Interval", head, rows), _queueing(findings), _elsewhere(findings))
    return "\n".join(part for part in parts if part)


def _queueing(findings: Findings) -> str:
    least_s = findings.asked.job.least_interval_s
    if findings.sweep[0].interval_s >= least_s:
        return ""
    return paragraph(f"Below {span(least_s)} background writes queue up: what is drawn there cannot be had.")


def _elsewhere(findings: Findings) -> str:
    """Why a bar beside the best one may be shorter."""
    job, found = findings.asked.job, findings.found
    lowest = min(point.waste.total for point in findings.sweep)
    exact = job.cost_s > EXACT_FROM * job.mtbf_s and found.reason is PlanReason.OWN_PERIOD
    if not exact or lowest >= found.best_waste.total:
        return ""
    return paragraph(
        "A checkpoint costs so much here that the formula behind the bars is no longer exact: best is the interval of "
        "the exact one, although another bar is shorter."
    )


def _row(point: Point, scale: float) -> list[str]:
    note = f"<- {point.note}" if point.note else ""
    return [percent(point.waste.total), _bar(point, scale).ljust(_BAR), note.ljust(8)]


def _bar(point: Point, scale: float) -> str:
    """Ends are rounded, not lengths, so that the bar as a whole is as long as the sum."""
    drawn, total = "", 0.0
    for cause, fill in _FILL.items():
        total += getattr(point.waste, cause)
        end = round(_BAR * min(1.0, total / scale))
        drawn += fill * (end - len(drawn))
    return drawn
