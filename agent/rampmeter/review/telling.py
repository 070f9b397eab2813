"""A review as people read it: what it comes to first, then flaws worst first, what is good, what to ask. 80 columns."""

import textwrap
from collections.abc import Iterator

from rampmeter.core.units import format_bytes, format_duration, format_rate
from rampmeter.review.figures import Figures
from rampmeter.review.finding import Finding, Review, Severity
from rampmeter.review.plan import CheckpointPlan, Mode
from rampmeter.review.wording import gpu_hours, gpus, listed, minutes, percent, seconds

_COLUMNS = 80
_MUCH = 0.1


def as_text(plan: CheckpointPlan, figures: Figures, review: Review) -> str:
    """The whole review."""
    paragraphs = [
        *_head(plan, figures, review),
        *_figures(plan, figures),
        *_flaws(review),
        *_list("Good", review.good),
        *_list("Questions to the author", review.questions),
    ]
    return "\n".join(paragraphs) + "\n"


def _head(plan: CheckpointPlan, figures: Figures, review: Review) -> Iterator[str]:
    name = plan.run.name or "The plan"
    length = format_duration(plan.run.length_s)
    yield from _wrapped(f"{name}: {gpus(plan.run.gpus)} for {length}, {figures.gpu_hours:,.0f} GPU-hours")
    yield from _wrapped(f"{_counted(review)} {_lost(plan, figures)}")
    yield ""


def _counted(review: Review) -> str:
    num_open = len(review.questions)
    left = f"; {num_open} question{'s are' if num_open > 1 else ' is'} open" if num_open else ""
    if not review.findings:
        return f"No flaw found{left}."
    found = [finding.flaw.severity for finding in review.findings]
    parts = [f"{found.count(severity)} {severity}" for severity in Severity if severity in found]
    return f"{len(found)} flaw{'s' if len(found) > 1 else ''}: {listed(parts)}{left}."


def _lost(plan: CheckpointPlan, figures: Figures) -> str:
    if figures.planned is None:
        return "The plan does not say enough to work out what is lost."
    total = figures.planned.lost
    restarts = "restarts counted" if plan.run.restart_s is not None else "restarts not counted"
    if not figures.ends:
        return f"As planned next to nothing of the run is left, {restarts}."
    said = (
        f"As planned {percent(total)} of the run is lost, about "
        f"{gpu_hours(total * figures.gpu_hours, plan.run)}, {restarts}."
    )
    return f"{said} Losses above a tenth are overstated (first-order formula)." if total > _MUCH else said


def _figures(plan: CheckpointPlan, figures: Figures) -> Iterator[str]:
    yield from _row("checkpoint", _checkpoint(plan, figures))
    if figures.planned is not None and figures.best is not None:
        lost = figures.planned.waste
        every = format_duration(figures.planned.interval_s)
        yield from _row(
            "stall", f"{percent(lost.write)}: {seconds(figures.planned.stall_s)} in every {every}"
        )
        yield from _row("rework", f"{percent(lost.rework)}: {_rework(plan, figures)}")
        if plan.run.restart_s:
            yield from _row(
                "restart", f"{percent(lost.restart)}: {format_duration(plan.run.restart_s)} per failure"
            )
        yield from _row(
            "best interval",
            f"{minutes(figures.best.interval_s)} for this stall: {percent(figures.best.lost)} lost",
        )
    yield ""


def _checkpoint(plan: CheckpointPlan, figures: Figures) -> str:
    text = format_bytes(figures.checkpoint_bytes)
    if figures.planned_bytes is not None and figures.planned_bytes < figures.checkpoint_bytes:
        text += f" (the plan says {format_bytes(figures.planned_bytes)})"
    if figures.write_s is not None and plan.storage.write_bytes_per_s is not None:
        text += f", {seconds(figures.write_s)} at {format_rate(plan.storage.write_bytes_per_s)}"
    return text


def _rework(plan: CheckpointPlan, figures: Figures) -> str:
    behind = plan.schedule.mode is Mode.ASYNCHRONOUS and figures.write_s is not None
    per_failure = "half an interval and a write" if behind else "half an interval"
    source = "" if figures.mtbf_is_given else " (assumed)"
    return f"{per_failure} per failure, one failure in {format_duration(figures.mtbf_s)}{source}"


def _row(name: str, text: str) -> Iterator[str]:
    yield from textwrap.wrap(
        text, _COLUMNS, initial_indent=f"  {name:<14}", subsequent_indent=" " * 16, break_on_hyphens=False
    )


def _flaws(review: Review) -> Iterator[str]:
    for number, finding in enumerate(review.findings, 1):
        yield from _flaw(number, finding)
    if sum(finding.flaw.lost_gpu_hours is not None for finding in review.findings) > 1:
        yield from _wrapped("Savings overlap: they do not add up to their sum.")
        yield ""


def _flaw(number: int, finding: Finding) -> Iterator[str]:
    flaw = finding.flaw
    yield from textwrap.wrap(
        f"{flaw.severity.upper():<8}  {flaw.what}",
        _COLUMNS,
        initial_indent=f"{number:>2}. ",
        subsequent_indent=" " * 14,
        break_on_hyphens=False,
    )
    for name, text in (("why", flaw.why), ("cost", flaw.cost), ("change", flaw.change)):
        yield from textwrap.wrap(
            text,
            _COLUMNS,
            initial_indent=f"    {name:<8}",
            subsequent_indent=" " * 12,
            break_on_hyphens=False,
        )
    yield ""


def _list(title: str, sentences: tuple[str, ...]) -> Iterator[str]:
    if not sentences:
        return
    yield title
    for sentence in sentences:
        yield from textwrap.wrap(
            sentence, _COLUMNS, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False
        )
    yield ""


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _COLUMNS, break_on_hyphens=False)
