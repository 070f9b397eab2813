"""Everything that one call of `rampmeter plan` found, before it is said."""

import argparse
from dataclasses import dataclass

from rampmeter.planner.answer import Answer, answer
from rampmeter.planner.changes import Change, changes
from rampmeter.planner.money import Bill, Duration, bill, duration
from rampmeter.planner.options import Question, read
from rampmeter.planner.retention import Kept, kept, stored_tb
from rampmeter.planner.shared import Shared, shared
from rampmeter.planner.spot import Spot, spot
from rampmeter.planner.strategies import Strategy, strategies
from rampmeter.planner.sweep import Point, points


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotRun:
    """The run on spot capacity: the comparison, its hours and its bill."""

    spot: Spot
    time: Duration | None
    bill: Bill | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """One answer per question; None or empty = not asked, or nothing that could be said."""

    asked: Question
    found: Answer
    time: Duration | None
    bill: Bill | None
    strategies: list[Strategy]
    changes: list[Change]
    spot: SpotRun | None
    shared: Shared | None
    kept: list[Kept]
    sweep: list[Point]


def find(args: argparse.Namespace) -> Findings:
    """Answer what the options ask."""
    asked = read(args)
    found = answer(asked.job)
    time = duration(asked.job, found, asked.run)
    lines = _kept(asked, found)
    return Findings(
        asked=asked,
        found=found,
        time=time,
        bill=bill(asked.job, found, asked.run, time, stored_tb=stored_tb(lines)) if time else None,
        strategies=strategies(asked.job) if args.strategies else [],
        changes=changes(args),
        spot=_spot(asked, found, stored_tb(lines)),
        shared=shared(asked.job, asked.storage) if asked.storage else None,
        kept=lines,
        sweep=points(asked.job, found) if args.sweep else [],
    )


def _kept(asked: Question, found: Answer) -> list[Kept]:
    if not asked.keep.anything or asked.job.num_bytes is None or asked.run.hours is None:
        return []
    return kept(
        asked.keep,
        num_bytes=asked.job.num_bytes,
        interval_s=found.interval_s,
        run_s=asked.run.hours * 3600.0,
    )


def _spot(asked: Question, found: Answer, tb: float) -> SpotRun | None:
    if asked.spot is None or asked.run.price_per_gpu_hour is None:
        return None
    compared = spot(asked.job, found, asked.run.price_per_gpu_hour, asked.spot)
    if compared is None:
        return None
    run = asked.run.at(asked.spot.price_per_gpu_hour)
    time = duration(compared.job, compared.found, run)
    return SpotRun(
        spot=compared,
        time=time,
        bill=bill(compared.job, compared.found, run, time, stored_tb=tb) if time else None,
    )
