"""All rules in one table: stable names (they are in `--json`), and the order of findings.

Worst first: by severity; at the same severity what corrupts or silently changes the run before what wastes; then by
GPU-hours lost; then as in this table.
"""

from collections.abc import Callable, Mapping

from rampmeter.review import operating, resuming, spending
from rampmeter.review.figures import Figures
from rampmeter.review.finding import Finding, Flaw, Review
from rampmeter.review.good import what_is_good
from rampmeter.review.plan import CheckpointPlan
from rampmeter.review.questions import open_questions

Rule = Callable[[CheckpointPlan, Figures], Flaw | None]

RULES: Mapping[str, Rule] = {
    "commit_order": resuming.commit_order,
    "overwritten": resuming.overwritten,
    "snapshot": resuming.snapshot,
    "state": resuming.state,
    "data_position": resuming.data_position,
    "pointer_update": resuming.pointer_update,
    "size": resuming.size,
    "resume_test": resuming.resume_test,
    "no_progress": spending.no_progress,
    "stall": spending.stall,
    "one_server": spending.one_server,
    "one_writer": spending.one_writer,
    "interval": spending.interval,
    "restart": spending.restart,
    "write_time": spending.write_time,
    "queue": spending.queue,
    "herd": spending.herd,
    "validation": operating.validation,
    "layout": operating.layout,
    "keeps_too_few": operating.keeps_too_few,
    "deletes_unverified": operating.deletes_unverified,
    "space": operating.space,
    "keeps_everything": operating.keeps_everything,
    "monitoring": operating.monitoring,
    "write_time_alert": operating.write_time_alert,
}


def review(plan: CheckpointPlan, figures: Figures) -> Review:
    """All that the rules find in a plan."""
    found = [Finding(rule=name, flaw=flaw) for name, rule in RULES.items() if (flaw := rule(plan, figures))]
    return Review(
        findings=tuple(sorted(found, key=_order)),
        good=what_is_good(plan, figures),
        questions=open_questions(plan, figures),
    )


def _order(finding: Finding) -> tuple[int, bool, float]:
    flaw = finding.flaw
    return flaw.severity.rank, not flaw.changes_run, -(flaw.lost_gpu_hours or 0.0)
