"""The findings for people: the answer first, then why, then what was asked beside it. Decides nothing."""

from collections.abc import Callable

from rampmeter.core.interval import EXACT_FROM, PRIOR_GPU_HOURS_PER_FAILURE, WRITE_FLOOR
from rampmeter.core.messages import PlanReason
from rampmeter.core.units import format_bytes, format_money, format_rate
from rampmeter.planner.answer import CAUSES, Answer
from rampmeter.planner.comparing import change_table, shared_table, spot_table, strategy_table
from rampmeter.planner.drawing import chart
from rampmeter.planner.findings import Findings
from rampmeter.planner.job import Job
from rampmeter.planner.money import Bill
from rampmeter.planner.text import hours, paragraph, percent, span, table

_NAMES = {"write": "writing checkpoints", "rework": "redoing lost work", "restart": "restarting"}
_AS_GOOD = 0.05
"""A loss this little above the best one (relative) is no reason to change the interval."""

_HOUR_S = 3600.0
_MUCH = 0.1
"""From this loss on it matters that a job that is down cannot fail: played runs lose 14 % where the formula says 15 %,
and 26 % where it says 34 %."""


def report(findings: Findings) -> str:
    """Everything that was found, as text."""
    parts: list[Callable[[Findings], str]] = [
        _headline,
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


def _headline(findings: Findings) -> str:
    found = findings.found
    if found.goodput <= 0.0 and found.best_waste.total < 1.0:
        return paragraph(
            f"With a checkpoint every {span(found.interval_s)} this run never ends: nothing is left for training.",
            _judgement(found),
        )
    if found.goodput <= 0.0:
        return paragraph(
            "This run never ends: dealing with a failure takes longer than it is until the next. "
            "Come back faster, make the checkpoint cheaper, or find capacity that fails less often."
        )
    lost = f"{percent(found.waste.total)} of the run is lost, {percent(found.goodput)} is useful."
    beside = [_shorter(findings), _wasted(findings), _cheaper(findings), _together(findings)]
    if findings.asked.job.every_s is None:
        return paragraph(f"Checkpoint every {span(found.interval_s)}: {lost}", *beside)
    judged = [_judgement(found), _queues(findings.asked.job)]
    return paragraph(f"With a checkpoint every {span(found.interval_s)}, {lost}", *judged, *beside)


def _queues(job: Job) -> str:
    if job.every_s is None or job.every_s >= job.least_interval_s:
        return ""
    return (
        f"A background write takes {span(job.load.write_s)} and the next is due after {span(job.every_s)}: writes "
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


def _cheaper(findings: Findings) -> str:
    if findings.spot is None:
        return ""
    saved = findings.spot.spot.saved_share
    if saved is None:
        return "On spot the run never ends."
    return f"On spot a useful GPU-hour is {percent(abs(saved), 0)} {'cheaper' if saved > 0.0 else 'dearer'}."


def _judgement(found: Answer) -> str:
    best = f"The best interval is {span(found.best_interval_s)}, with {percent(found.best_waste.total)} lost:"
    if not _as_good_as_best(found):
        return f"{best} change to it."
    problem = "time to come back" if _restarts(found) else "cost of a checkpoint"
    return f"{best} the interval is not the problem, the {problem} is."


def _as_good_as_best(found: Answer) -> bool:
    return found.waste.total <= found.best_waste.total * (1.0 + _AS_GOOD)


def _restarts(found: Answer) -> bool:
    return found.dominant == "restart"


def _together(findings: Findings) -> str:
    together, storage = findings.shared, findings.asked.storage
    if together is None or storage is None:
        return ""
    return (
        f"That is this job alone. With {storage.num_jobs:,} such jobs on {format_rate(storage.capacity_bytes_per_s)}: "
        f"every {span(together.interval_s)}, {percent(together.waste_total)} lost."
    )


def _why(findings: Findings) -> str:
    job, found = findings.asked.job, findings.found
    return paragraph(_costs(job), _reason(job, found) if found.goodput else "")


def _costs(job: Job) -> str:
    size = f" of {format_bytes(job.num_bytes)}" if job.num_bytes is not None else ""
    rate = f" at {format_rate(job.max_bytes_per_s)}" if job.synchronous and job.max_bytes_per_s else ""
    restart = f", and coming back takes {span(job.down_s)}" if job.down_s else ""
    slowed = ", slower steps while it writes included" if job.cost_s != job.stall_s else ""
    return (
        f"Why: a checkpoint{size} costs training {span(job.cost_s)}{rate}{slowed}; "
        f"a failure comes every {span(job.mtbf_s)}{restart}."
    )


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
    if _restarts(found):
        return paragraph(f"Restarting is {part} of the loss: no interval can touch it. Come back faster.")
    if _as_good_as_best(found) and found.reason is PlanReason.WRITE_FLOOR:
        return paragraph(
            "The write time decides: with a faster write the interval may be shorter and less work is redone."
        )
    if _as_good_as_best(found):
        return paragraph(
            "Only a cheaper checkpoint or fewer failures make writing and redoing less, "
            "both as a square root: four times cheaper is half the loss."
        )
    if found.dominant == "rework":
        return paragraph(f"Redoing is {part} of the loss: checkpoint more often.")
    return paragraph(f"Writing is {part} of the loss: checkpoint less often, or make it cheaper.")


def _run(findings: Findings) -> str:
    time = findings.time
    if time is None:
        return ""
    rows = [["useful", hours(time.useful_h)], ["wall clock, on average", hours(time.wall_h)]]
    if time.luck:
        rows.append(["wall clock, 95 of 100 runs end by", hours(time.luck.wall_h)])
    rows.append(["failures, on average", _few(time.num_failures)])
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


def _few(count: float) -> str:
    """A mean number: 83, 1.3, 0.00048."""
    return f"{count:,.0f}" if count >= 10.0 else f"{count:.2g}"


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
    return table("Checkpoints kept", ["number", "size"], rows)


def _assumed(findings: Findings) -> str:
    job = findings.asked.job
    said = [
        _prior(findings),
        "" if job.down_s else "a restart takes no time (--restart)",
        _not_durable(job),
        _free(_bills(findings)),
        _first_order(findings),
    ]
    said = [one for one in said if one]
    return paragraph("Assumed: " + "; ".join(said) + ".") if said else ""


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
        "the formula is of first order and overstates losses of more than a tenth"
        if max(losses) > _MUCH
        else ""
    )


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
