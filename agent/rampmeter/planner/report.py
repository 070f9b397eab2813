"""The findings for people: the answer first, then why, then what was asked beside it. Decides nothing."""

from collections.abc import Callable

from rampmeter.core.interval import EXACT_FROM, PRIOR_GPU_HOURS_PER_FAILURE, WRITE_FLOOR
from rampmeter.core.messages import PlanReason
from rampmeter.core.units import format_bytes, format_money, format_rate
from rampmeter.planner.answer import CAUSES, Answer
from rampmeter.planner.comparing import change_table, shared_table, spot_table, strategy_table
from rampmeter.planner.drawing import chart
from rampmeter.planner.findings import Findings
from rampmeter.planner.headline import headline
from rampmeter.planner.job import Job
from rampmeter.planner.money import Bill
from rampmeter.planner.text import few, hours, paragraph, percent, span, table

_NAMES = {"write": "writing checkpoints", "rework": "redoing lost work", "restart": "restarting"}
_MUCH = 0.1
"""From this loss on it matters that a job that is down cannot fail: played runs lose 14 % where the formula says 15 %,
and 26 % where it says 34 %."""


def report(findings: Findings) -> str:
    """Everything that was found, as text."""
    parts: list[Callable[[Findings], str]] = [
        headline,
        _why,
        _loss,
        _run,
        _money,
        strategy_table,
        change_table,
        spot_table,
        shared_table,
        _retention,
        chart,
        _assumed,
    ]
    said = [part(findings) for part in parts]
    return "\n\n".join(text for text in said if text)


def _why(findings: Findings) -> str:
    job, found = findings.asked.job, findings.found
    return paragraph(_costs(job), _reason(job, found) if found.goodput else "")


def _costs(job: Job) -> str:
    size = f" of {format_bytes(job.num_bytes)}" if job.num_bytes is not None else ""
    rate = f" at {format_rate(job.max_bytes_per_s)}" if job.synchronous and job.max_bytes_per_s else ""
    restart = f", and coming back takes {span(job.down_s)}" if job.down_s else ""
    restart += _beside_restart(job)
    slowed = ", slower steps while it writes included" if job.cost_s != job.stall_s else ""
    return (
        f"Why: a checkpoint{size} costs training {span(job.cost_s)}{rate}{slowed}; "
        f"a failure comes every {span(job.mtbf_s)}{restart}."
    )


def _beside_restart(job: Job) -> str:
    parts = [
        *(["waiting for capacity"] if job.wait_s else []),
        *(["attempts that fail"] if job.failed_share and job.down_s else []),
    ]
    return f" with {' and '.join(parts)}" if parts else ""


def _reason(job: Job, found: Answer) -> str:
    best = span(found.best_interval_s)
    if found.reason is PlanReason.WRITE_FLOOR and job.write_s is not None:
        return (
            f"A write takes {span(job.write_s)}, and the next must not begin before it has ended: "
            f"{best} is {WRITE_FLOOR:g} write times, longer than the loss alone would ask for."
        )
    if found.reason is PlanReason.PRICE:
        return f"At the base price of a byte {best} is best; without it the interval would be shorter."
    formula = "sqrt(2 x cost x time between failures)"
    if job.cost_s > EXACT_FROM * job.mtbf_s:
        formula = "the exact optimum, as the cost is not small against the time between failures"
    return (
        "More checkpoints cost more writing, fewer more redone work; "
        f"{best} is where both together cost least: {formula}."
    )


def _loss(findings: Findings) -> str:
    lost = findings.found.waste
    shares = {cause: getattr(lost, cause) for cause in CAUSES}
    rows = [
        [_NAMES[cause], percent(share, 2), percent(share / lost.total, 0)] for cause, share in shares.items()
    ]
    rows.append(["together", percent(lost.total, 2), ""])
    return table("Where the time goes", ["of the run", "of the loss"], rows) + "\n" + _lever(findings.found)


def _lever(found: Answer) -> str:
    part = percent(getattr(found.waste, found.dominant) / found.waste.total, 0)
    if found.dominant == "restart":
        return paragraph(f"Restarting is {part} of the loss: no interval can touch it. Come back faster.")
    if found.near_best and found.reason is PlanReason.WRITE_FLOOR:
        return paragraph(
            "The write time decides: with a faster write the interval may be shorter and less work is redone."
        )
    if found.near_best:
        return paragraph(
            "Only a cheaper checkpoint or fewer failures make writing and redoing less, "
            "both as a square root: four times cheaper halves them."
        )
    if found.dominant == "rework":
        return paragraph(f"Redoing is {part} of the loss: checkpoint more often.")
    return paragraph(f"Writing is {part} of the loss: checkpoint less often, or make it cheaper.")


def _run(findings: Findings) -> str:
    time = findings.time
    if time is None:
        return ""
    clock = "wall clock, on average" if time.luck else "wall clock, booked"
    rows = [["useful", hours(time.useful_h)], [clock, hours(time.wall_h)]]
    if time.luck:
        rows.append(["wall clock, 95 of 100 runs end by", hours(time.luck.wall_h)])
    rows.append(["failures, on average", few(time.num_failures)])
    if time.luck:
        rows.append(["failures, 95 of 100 runs at most", f"{time.luck.num_failures:,}"])
    num_gpus = findings.asked.job.num_gpus
    rows.append(["GPU-hours", f"{time.wall_h * num_gpus:,.0f}"])
    rows.append(["of them lost", f"{(time.wall_h - time.useful_h) * num_gpus:,.0f}"])
    text = table("The run", [""], rows)
    if not time.luck:
        return text
    return f"{text}\n" + paragraph(
        "Failures come at random (a Poisson process), each costs redone work and a restart: the hours of bad luck "
        "follow from the number of failures that 95 of 100 such runs do not exceed."
    )


def _money(findings: Findings) -> str:
    bills = _bills(findings)
    if not bills:
        return ""
    items = zip(*(_items(costs) for costs in bills), strict=True)
    rows = [
        [same[0][0], *(format_money(amount) for _, amount in same)]
        for same in items
        if any(a for _, a in same)
    ]
    return table("Money", ["on demand", "spot"] if len(bills) > 1 else [""], rows)


def _bills(findings: Findings) -> list[Bill]:
    both = (findings.bill, findings.spot.bill if findings.spot else None)
    return [costs for costs in both if costs is not None]


def _items(costs: Bill) -> list[tuple[str, float]]:
    return [
        ("useful GPU time", costs.useful),
        ("writing checkpoints", costs.checkpoints),
        ("redone work", costs.rework),
        ("restarts", costs.restart),
        ("waiting for capacity", costs.waiting),
        ("recoveries that failed", costs.failed_recoveries),
        ("manual work", costs.manual),
        ("storage of checkpoints", costs.storage),
        ("together", costs.total),
        ("of it GPU time lost", costs.wasted),
    ]


def _retention(findings: Findings) -> str:
    if not findings.kept:
        return ""
    rows = [[line.name, f"{line.num_checkpoints:,}", format_bytes(line.num_bytes)] for line in findings.kept]
    together = findings.kept[1:]
    num_bytes = sum(line.num_bytes for line in together)
    rows.append(
        ["kept, together", f"{sum(line.num_checkpoints for line in together):,}", format_bytes(num_bytes)]
    )
    return table("Checkpoints", ["number", "size"], rows)


def _assumed(findings: Findings) -> str:
    job = findings.asked.job
    said = [
        _prior(findings),
        "" if job.down_s else "a restart takes no time (--restart)",
        _not_durable(job),
        _waiting(_bills(findings)),
        _free(_bills(findings)),
        _first_order(findings),
    ]
    said = [one for one in said if one]
    return paragraph(f"Assumed (an option in brackets changes it): {'; '.join(said)}.") if said else ""


def _prior(findings: Findings) -> str:
    if not findings.asked.mtbf_is_prior:
        return ""
    prior = f"{PRIOR_GPU_HOURS_PER_FAILURE:,.0f} GPU-hours per failure"
    return f"{prior}, corrected by the failures seen" if findings.asked.failures_seen else f"{prior} (--mtbf)"


def _not_durable(job: Job) -> str:
    if job.count_write or job.synchronous:
        return ""
    size = f" would count {percent(job.write_s / job.mtbf_s, 2)}" if job.write_s is not None else ""
    return f"a snapshot is durable at once (--write{size})"


def _first_order(findings: Findings) -> str:
    losses = [findings.found.waste.total]
    if findings.spot:
        losses.append(findings.spot.spot.found.waste.total)
    return (
        "the formula lets a job fail while it is down, and so overstates losses of more than a tenth"
        if max(losses) > _MUCH
        else ""
    )


def _waiting(bills: list[Bill]) -> str:
    return "GPUs are paid for while the job waits" if any(costs.waiting for costs in bills) else ""


def _free(bills: list[Bill]) -> str:
    options = {
        "waiting (--wait)": sum(costs.waiting for costs in bills),
        "failed recoveries (--failed-recoveries, --manual-cost)": sum(
            costs.failed_recoveries for costs in bills
        ),
        "storage (--price-per-tb-month)": sum(costs.storage for costs in bills),
    }
    left_out = [option for option, amount in options.items() if not amount]
    return f"nothing is paid for {', '.join(left_out)}" if bills and left_out else ""
