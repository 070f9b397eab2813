"""The findings for programs. The keys of docs/operations.md are kept stable; others may be added."""

from dataclasses import asdict
from typing import Any

from rampmeter.core.interval import Waste
from rampmeter.planner.answer import Answer
from rampmeter.planner.changes import Change
from rampmeter.planner.findings import Findings, SpotRun
from rampmeter.planner.money import Bill, Duration
from rampmeter.planner.strategies import Strategy


def as_json(findings: Findings) -> dict[str, Any]:
    """Seconds, bytes, bytes per second, hours, money and fractions; what was not asked is absent."""
    job, found = findings.asked.job, findings.found
    said = {
        **_answer(found),
        "best_interval_s": found.best_interval_s,
        "reason": str(found.reason),
        "write_fits_interval": found.interval_s >= job.least_interval_s,
        "stall_s": job.stall_s,
        "write_s": job.write_s,
        "mtbf_s": job.mtbf_s,
        "restart_s": job.down_s,
        "size_bytes": job.num_bytes,
        **_hours(findings),
        "strategies": [_strategy(one) for one in findings.strategies],
        "changes": [_change(one, findings.time, job.num_gpus) for one in findings.changes],
        "spot": _spot(findings.spot) if findings.spot else None,
        "shared": asdict(findings.shared) if findings.shared else None,
        "retention": [asdict(line) for line in findings.kept],
        "sweep": [
            {"interval_s": point.interval_s, "waste": _waste(point.waste), "note": point.note}
            for point in findings.sweep
        ],
    }
    return {key: value for key, value in said.items() if value is not None and value != []}


def _answer(found: Answer) -> dict[str, Any]:
    return {
        "interval_s": found.interval_s,
        "waste": _waste(found.waste),
        "goodput": found.goodput,
        "dominant": found.dominant,
    }


def _waste(lost: Waste) -> dict[str, float]:
    return {"write": lost.write, "rework": lost.rework, "restart": lost.restart, "total": lost.total}


def _hours(findings: Findings) -> dict[str, Any]:
    time, found, run = findings.time, findings.found, findings.asked.run
    said: dict[str, Any] = {}
    if time is not None:
        said |= {"wall_h": time.wall_h, "useful_h": time.useful_h, "num_failures": time.num_failures}
        said["wasted_gpu_h"] = (time.wall_h - time.useful_h) * findings.asked.job.num_gpus
        said["wall_p95_h"] = time.luck.wall_h if time.luck else None
    if run.price_per_gpu_hour is not None and found.goodput:
        said["cost_per_useful_gpu_hour"] = run.price_per_gpu_hour / found.goodput
    if findings.bill is not None:
        said |= {"wasted_cost": findings.bill.wasted, "cost": _bill(findings.bill)}
    return said


def _bill(costs: Bill) -> dict[str, float]:
    return {**asdict(costs), "total": costs.total}


def _strategy(one: Strategy) -> dict[str, Any]:
    return {
        "name": one.name,
        "stall_s": one.job.stall_s,
        "write_s": one.write_s,
        **_answer(one.found),
        "ends_before_next": one.ends_before_next,
    }


def _change(one: Change, before: Duration | None, num_gpus: int) -> dict[str, Any]:
    said: dict[str, Any] = {"change": one.text, **_answer(one.found)}
    if before is not None and one.time is not None:
        said["saved_gpu_h"] = one.saved_h(before) * num_gpus
    if one.on_spot is not None:
        said["spot_goodput"] = one.on_spot.goodput
        said["spot_cost_per_useful_gpu_hour"] = one.spot_cost_per_useful_gpu_hour
    return said


def _spot(run: SpotRun) -> dict[str, Any]:
    compared = run.spot
    said: dict[str, Any] = {
        **_answer(compared.found),
        "cost_per_useful_gpu_hour": compared.cost_per_useful_gpu_hour,
        "saved_share": compared.saved_share,
        "break_even_goodput": compared.break_even_goodput,
        "wins": compared.wins,
        "restart_limit_s": compared.restart_limit_s,
        "mtbf_limit_s": compared.mtbf_limit_s,
    }
    if run.time is not None:
        said["wall_h"] = run.time.wall_h
    if run.bill is not None:
        said["cost"] = _bill(run.bill)
    if compared.notice is not None:
        said["notice"] = {**asdict(compared.notice), "fits": compared.notice.fits}
    return said
