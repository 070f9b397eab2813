"""The tables that set one plan beside another: ways to write, changes, spot, many jobs on one storage."""

from rampmeter.core.interval import WRITE_FLOOR
from rampmeter.core.units import format_money, format_rate
from rampmeter.planner.changes import Change
from rampmeter.planner.findings import Findings, SpotRun
from rampmeter.planner.job import Job
from rampmeter.planner.money import HOURS_PER_MONTH, duration
from rampmeter.planner.shared import USABLE_SHARE, Herd, Shared
from rampmeter.planner.spot import Notice, Spot
from rampmeter.planner.strategies import ASYNC_STALL, SHARDS, Strategy
from rampmeter.planner.text import few, hours, paragraph, percent, span, table

NO_FIGURE = "no figure"
"""Where the formula loses everything: a job that is down cannot fail, so something is done all the same."""

_GB = 1e9
_WORTH_SAYING = 5e-5
"""A difference that is shown as 0.00 % is none."""


def strategy_table(findings: Findings) -> str:
    """Ways to write the same checkpoint."""
    if not findings.strategies:
        return ""
    rows = [_strategy(findings, one) for one in findings.strategies]
    wasted = [] if findings.time is None else ["lost GPU-h" if findings.bill is None else "lost $"]
    text = table("Ways to write it", ["stall", "interval", "lost", "useful", *wasted, "room"], rows)
    return f"{text}\n" + paragraph(
        _supposed(findings.asked.job),
        "Room: how often the background write fits into the interval (waits: training stands still for all of it). "
        "Below "
        f"{WRITE_FLOOR:g} writes would queue and training would wait after all, so that the interval is held there.",
    )


def _supposed(job: Job) -> str:
    """The figures that the table takes for granted."""
    one_s = span(job.stall_s if job.write_s is None else job.write_s)
    return (
        f"Supposed: one writer takes {one_s} and {SHARDS} take a {SHARDS}th of that, which the storage must be able to "
        f"do; in the background {percent(ASYNC_STALL, 0)} of the write still stops training."
    )


def _strategy(findings: Findings, one: Strategy) -> list[str]:
    room = "waits" if one.job.synchronous else f"x {one.headroom:.1f}"
    return [
        one.name,
        span(one.job.cost_s),
        span(one.found.interval_s),
        percent(one.found.waste.total, 2),
        percent(one.found.goodput, 2),
        *([] if findings.time is None else [_lost_money(findings, one)]),
        room if one.ends_before_next else f"{room}, held",
    ]


def _lost_money(findings: Findings, one: Strategy) -> str:
    run = findings.asked.run
    time = duration(one.job, one.found, run)
    if time is None:
        return "-"
    lost_h = (time.wall_h - time.useful_h) * one.job.num_gpus
    return (
        f"{lost_h:,.0f}" if run.price_per_gpu_hour is None else format_money(lost_h * run.price_per_gpu_hour)
    )


def change_table(findings: Findings) -> str:
    """What one other figure would give, against the plan as it is."""
    if not findings.changes:
        return ""
    head = ["interval", "lost", "useful"]
    head += ["saved GPU-h"] if findings.time else []
    head += ["on spot"] if findings.spot else []
    text = table("What if", head, [_change(findings, one) for one in findings.changes])
    if not findings.spot:
        return text
    return f"{text}\n" + paragraph("On spot: the useful share there, and what a useful GPU-hour costs.")


def _change(findings: Findings, one: Change) -> list[str]:
    row = [
        one.text,
        span(one.found.interval_s),
        percent(one.found.waste.total, 2),
        percent(one.found.goodput, 2),
    ]
    if findings.time:
        saved_h = one.saved_h(findings.time) * findings.asked.job.num_gpus
        row.append(f"{saved_h:,.0f}" if one.time else NO_FIGURE)
    if findings.spot and one.on_spot:
        row.append(f"{percent(one.on_spot.goodput, 2)}, {_or_none(one.spot_cost_per_useful_gpu_hour)}")
    return row


def spot_table(findings: Findings) -> str:
    """Spot beside on demand."""
    there = findings.spot
    if there is None:
        return ""
    spot = there.spot
    parts = [
        table("Spot or on demand", ["on demand", "spot"], _spot_rows(findings, there)),
        _verdict(spot),
        _notice(spot.notice) if spot.notice else "",
        _deadline(findings, there),
    ]
    return "\n".join(part for part in parts if part)


def _spot_rows(findings: Findings, there: SpotRun) -> list[list[str]]:
    found, spot, run = findings.found, there.spot, findings.asked.run
    price = run.price_per_gpu_hour or 0.0
    spot_price = findings.asked.spot.price_per_gpu_hour if findings.asked.spot else 0.0
    rows = [
        ["a GPU-hour", format_money(price), format_money(spot_price)],
        ["a failure every", span(findings.asked.job.mtbf_s), span(spot.job.mtbf_s)],
        ["interval", span(found.interval_s), span(spot.found.interval_s)],
        ["lost", percent(found.waste.total, 2), percent(spot.found.waste.total, 2)],
        ["of it restarting", percent(found.waste.restart, 2), percent(spot.found.waste.restart, 2)],
        ["useful", percent(found.goodput, 2), percent(spot.found.goodput, 2)],
        ["a useful GPU-hour", format_money(price / found.goodput), _or_none(spot.cost_per_useful_gpu_hour)],
    ]
    if findings.time and findings.bill:
        rows.append(
            [
                "the run",
                format_money(findings.bill.total),
                _or_none(there.bill.total if there.bill else None),
            ]
        )
        rows.append(
            [
                "wall clock, on average",
                hours(findings.time.wall_h),
                hours(there.time.wall_h) if there.time else "-",
            ]
        )
    if findings.time and findings.time.luck:
        spot_h = hours(there.time.luck.wall_h) if there.time and there.time.luck else "-"
        rows.append(["95 of 100 runs end by", hours(findings.time.luck.wall_h), spot_h])
    return rows


def _or_none(amount: float | None) -> str:
    return NO_FIGURE if amount is None else format_money(amount)


def _verdict(spot: Spot) -> str:
    border = f"Spot wins as long as more than {percent(spot.break_even_goodput)} of its time is useful"
    if spot.restart_limit_s is None or spot.mtbf_limit_s is None:
        return paragraph(f"{border}; here it does not win.")
    return paragraph(
        _restarts(spot),
        f"{border}: until a restart takes {span(spot.restart_limit_s)} (now {span(spot.job.restart_s)}), or an "
        f"interruption comes every {span(spot.mtbf_limit_s)} (now {span(spot.job.mtbf_s)}), "
        f"{spot.job.mtbf_s / spot.mtbf_limit_s:.1f} times as often. Watch both.",
    )


def _restarts(spot: Spot) -> str:
    if spot.found.dominant != "restart":
        return ""
    part = percent(spot.found.waste.restart / spot.found.waste.total, 0)
    return f"On spot restarting is {part} of the loss: it matters more than the interval."


def _notice(notice: Notice) -> str:
    best = f"if every interruption is announced and saved in time, {percent(notice.goodput)} is useful"
    if notice.save_s is None:
        return paragraph(f"Notice of {span(notice.notice_s)}: {best}. Whether a save fits is unknown without --size "
                         "and --bandwidth, or --write.")  # fmt: skip
    if not notice.fits:
        return paragraph(
            f"Notice of {span(notice.notice_s)}: a save takes {span(notice.save_s)} and does not fit. "
            "It changes nothing."
        )
    return paragraph(
        f"Notice of {span(notice.notice_s)}: a save takes {span(notice.save_s)} and fits; {best}."
    )


def _deadline(findings: Findings, there: SpotRun) -> str:
    if not there.time or not there.time.luck or not findings.time or not findings.time.luck:
        return ""
    later_h = there.time.luck.wall_h - findings.time.luck.wall_h
    if not there.spot.wins or later_h <= 0.0:
        return ""
    return paragraph(
        "Deadline or budget? If money decides, take spot. If a date does, plan with the hours by which 95 of 100 runs "
        f"end: {hours(later_h)} later on spot, and later still when spot capacity cannot be had."
    )


def shared_table(findings: Findings) -> str:
    """Many such jobs on one storage."""
    together, storage = findings.shared, findings.asked.storage
    if together is None or storage is None:
        return ""
    num_gpus = storage.num_jobs * findings.asked.job.num_gpus
    title = f"{storage.num_jobs:,} such jobs on {format_rate(storage.capacity_bytes_per_s)}"
    rows = [
        [
            "coordinated",
            span(together.interval_s),
            span(together.write_s),
            percent(together.waste_with_write, 2),
        ],
        _herd("each for itself, at random", together.random_phases),
        _herd("all at once, as after an incident", together.aligned),
    ]
    return "\n".join(
        [
            table(title, ["interval", "a write takes", "lost"], rows),
            _asked(together, storage.capacity_bytes_per_s),
            paragraph(
                _busy(together),
                _saved(together, num_gpus, findings.asked.run.price_per_gpu_hour),
                "Here a snapshot counts as lost until its write has ended.",
            ),
        ]
    )


def _busy(together: Shared) -> str:
    if not together.random_phases.never_rests:
        return ""
    return "Each for itself they never stop writing: when a write ends the next is due."


def _saved(together: Shared, num_gpus: int, price_per_gpu_hour: float | None) -> str:
    if together.waste_with_write >= 1.0:
        return ""
    saved = min(1.0, together.random_phases.waste_total) - together.waste_with_write
    if saved < _WORTH_SAYING:
        return "Starts at random are as good here, as long as they stay random."
    monthly = (price_per_gpu_hour or 0.0) * saved * num_gpus * HOURS_PER_MONTH
    money = f", {format_money(monthly)} a month" if monthly else ""
    return (
        f"Against starts at random coordination saves {percent(saved, 2)} of every run: {few(saved * num_gpus)} of "
        f"their {num_gpus:,} GPUs{money}."
    )


def _herd(name: str, herd: Herd) -> list[str]:
    return [name, span(herd.interval_s), span(herd.write_s), percent(herd.waste_total, 2)]


def _price(amount: float) -> str:
    """With three digits, and none behind the point of a large one."""
    return f"{amount:.3g}" if amount < 1_000.0 else f"{amount:,.0f}"


def _asked(together: Shared, capacity_bytes_per_s: int) -> str:
    usable = USABLE_SHARE * capacity_bytes_per_s
    asked = (
        f"At their own interval they ask for {format_rate(together.own_demand_bytes_per_s)} on average; "
        f"{format_rate(usable)} may be planned ({percent(USABLE_SHARE, 0)} of the storage)."
    )
    if together.own_demand_bytes_per_s <= usable * (1.0 + 1e-9):
        return paragraph(asked, "That fits: the price of a byte is 0, and nobody has to wait longer.")
    return paragraph(
        asked,
        f"That does not fit: at a price of {_price(together.price * _GB)} GPU-seconds per written GB every interval "
        f"stretches to {span(together.interval_s)}, and they ask for {format_rate(together.demand_bytes_per_s)}.",
    )
