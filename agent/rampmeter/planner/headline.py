"""The first sentences of `rampmeter plan`: the answer to what was asked, before any reason. Decides nothing."""

from rampmeter.core.units import format_money, format_rate
from rampmeter.planner.answer import Answer
from rampmeter.planner.findings import Findings
from rampmeter.planner.job import Job
from rampmeter.planner.text import paragraph, percent, span

_HOUR_S = 3600.0


def headline(findings: Findings) -> str:
    """One paragraph."""
    job, found = findings.asked.job, findings.found
    if found.goodput <= 0.0 and found.best_waste.total < 1.0:
        return paragraph(
            f"With a checkpoint every {span(found.interval_s)} this run hardly gets on: next to nothing is left for "
            "training.",
            _judgement(job, found),
        )
    if found.goodput <= 0.0:
        return paragraph(
            "This run hardly gets on: dealing with a failure takes longer than it is until the next, and the formula "
            "has no figure for what is left. Come back faster, make the checkpoint cheaper, or find capacity that "
            "fails less often."
        )
    lost = f"{percent(found.waste.total)} of the run is lost, {percent(found.goodput)} is useful"
    lost += "." if job.down_s else "; restarts are not counted."
    beside = [
        _shorter(findings),
        _wasted(findings),
        _better(found, [(f"Written {way.name}", way.found) for way in findings.strategies]),
        _better(found, [(f"With {change.text}", change.found) for change in findings.changes]),
        _cheaper(findings),
        _together(findings),
    ]
    if job.every_s is None:
        return paragraph(f"Checkpoint every {span(found.interval_s)}: {lost}", *beside)
    judged = [_judgement(job, found), _queues(job, found)]
    return paragraph(f"With a checkpoint every {span(found.interval_s)}, {lost}", *judged, *beside)


def _queues(job: Job, found: Answer) -> str:
    if found.interval_s >= job.least_interval_s:
        return ""
    return (
        f"A background write takes {span(job.load.write_s)} and the next is due after {span(found.interval_s)}: writes "
        "queue up and training waits for them after all, so that more is lost than is said here."
    )


def _shorter(findings: Findings) -> str:
    if findings.time is None or findings.time.useful_h * _HOUR_S > findings.found.interval_s:
        return ""
    return "The run is shorter than that: what it saves at its end is enough."


def _wasted(findings: Findings) -> str:
    if findings.bill:
        return f"The lost GPU time costs {format_money(findings.bill.wasted)}."
    price = findings.asked.run.price_per_gpu_hour
    if price is None:
        return ""
    return f"A useful GPU-hour costs {format_money(price / findings.found.goodput)} instead of {format_money(price)}."


def _better(found: Answer, others: list[tuple[str, Answer]]) -> str:
    """The best of what was asked beside the plan, if it is worth it."""
    name, best = min(others, key=lambda other: other[1].waste.total, default=("", found))
    if not found.worth_leaving_for(best.waste):
        return ""
    return f"{name}, {percent(best.waste.total)} would be lost."


def _cheaper(findings: Findings) -> str:
    if findings.spot is None:
        return ""
    saved = findings.spot.spot.saved_share
    if saved is None:
        return "On spot the run hardly gets on."
    return f"On spot a useful GPU-hour is {percent(abs(saved), 0)} {'cheaper' if saved > 0.0 else 'dearer'}."


def _judgement(job: Job, found: Answer) -> str:
    best = f"The best interval is {span(found.best_interval_s)}, with {percent(found.best_waste.total)} lost:"
    if not found.near_best or found.interval_s < job.least_interval_s:
        return f"{best} change to it."
    problem = "time to come back" if found.dominant == "restart" else "cost of a checkpoint"
    return f"{best} the interval is not the problem, the {problem} is."


def _together(findings: Findings) -> str:
    together, storage = findings.shared, findings.asked.storage
    if together is None or storage is None:
        return ""
    jobs = f"With {storage.num_jobs:,} such jobs on {format_rate(storage.capacity_bytes_per_s)}"
    if together.waste_total >= 1.0:
        return f"That is this job alone. {jobs} hardly one would get on: the storage is too small for them."
    return f"That is this job alone. {jobs}: every {span(together.interval_s)}, {percent(together.waste_total)} lost."
