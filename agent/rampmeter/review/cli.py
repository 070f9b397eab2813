"""`rampmeter review`: reads a checkpoint plan and says what is wrong with it. It only reads.

Exit codes: 0 the plan was reviewed, 1 a flaw at or above --fail-on, 2 a plan that cannot be read (the message names the
section and key).
"""

import argparse
import json
from pathlib import Path
from typing import Any

from rampmeter.core.interval import Waste
from rampmeter.printing import print_answer
from rampmeter.review.figures import Figures, Outlook, figures
from rampmeter.review.finding import Finding, Review, Severity
from rampmeter.review.plan import CheckpointPlan
from rampmeter.review.reading import read_plan
from rampmeter.review.rules import review
from rampmeter.review.telling import as_text

_NEVER = "never"

_HELP = """\
Read a checkpoint plan and list what is wrong with it, what that costs and what
to change, worst first: what corrupts or silently changes the run before what
wastes GPU-hours. What the plan does not say becomes a question to its author.

Examples:
  rampmeter review plan.toml
  rampmeter review plan.toml --fail-on high    # in CI: 1 if high or critical

docs/checkpoint-plan.toml explains every key of a plan. Exit codes: 0 reviewed,
1 a flaw at or above --fail-on, 2 a plan that cannot be read.
"""


class ReviewCommand:
    """Fulfils rampmeter.cli.Command."""

    name = "review"
    help = _HELP

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("plan", metavar="PLAN.toml", type=Path, help="the plan, in TOML")
        parser.add_argument(
            "--fail-on",
            choices=[*(severity.value for severity in Severity), _NEVER],
            default=_NEVER,
            help="exit with 1 if a flaw is as bad as this or worse (default: never, a review is advice)",
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def run(self, args: argparse.Namespace) -> int:
        plan = read_plan(args.plan)
        found = figures(plan)
        result = review(plan, found)
        text = json.dumps(as_json(plan, found, result)) + "\n" if args.json else as_text(plan, found, result)
        print_answer(text)
        return 1 if _fails(result, args.fail_on) else 0


def _fails(result: Review, fail_on: str) -> bool:
    if fail_on == _NEVER:
        return False
    return any(finding.flaw.severity.rank <= Severity(fail_on).rank for finding in result.findings)


def as_json(plan: CheckpointPlan, found: Figures, result: Review) -> dict[str, Any]:
    """The review for programs; `null` is what cannot be told from the plan."""
    return {
        "name": plan.run.name,
        "gpu_hours": found.gpu_hours,
        "mtbf_s": found.mtbf_s,
        "mtbf_assumed": not found.mtbf_is_given,
        "checkpoint_bytes": found.checkpoint_bytes,
        "planned_bytes": found.planned_bytes,
        "write_s": found.write_s,
        "num_checkpoints": found.num_checkpoints,
        "planned": _outlook(found.planned, found),
        "best": _outlook(found.best, found),
        "copied": _outlook(found.copied, found),
        "flaws": [_flaw(finding) for finding in result.findings],
        "good": list(result.good),
        "questions": list(result.questions),
    }


def _outlook(outlook: Outlook | None, found: Figures) -> dict[str, Any] | None:
    if outlook is None:
        return None
    return {
        "interval_s": outlook.interval_s,
        "stall_s": outlook.stall_s,
        "waste": _waste(outlook.waste),
        "lost_gpu_hours": outlook.lost * found.gpu_hours,
    }


def _waste(lost: Waste) -> dict[str, float]:
    return {"write": lost.write, "rework": lost.rework, "restart": lost.restart, "total": lost.total}


def _flaw(finding: Finding) -> dict[str, Any]:
    flaw = finding.flaw
    return {
        "rule": finding.rule,
        "severity": flaw.severity,
        "changes_run": flaw.changes_run,
        "what": flaw.what,
        "why": flaw.why,
        "cost": flaw.cost,
        "change": flaw.change,
        "lost_gpu_hours": flaw.lost_gpu_hours,
        "saved_bytes": flaw.saved_bytes,
    }
