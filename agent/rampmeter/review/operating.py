"""Rules on running it: validation, restore on other nodes, what is kept, who is told. Pure functions of the plan."""

from rampmeter.core.units import format_bytes, format_duration, format_money
from rampmeter.review.figures import Figures, num_kept
from rampmeter.review.finding import Flaw, Severity
from rampmeter.review.plan import Alert, CheckpointPlan, Keep, Layout, Retention
from rampmeter.review.wording import gpu_hours, listed, tb

DAY_S = 86400.0
KEEP_LAST = 3
"""What the advice keeps beside one a day."""

WORTH_DELETING_BYTES = 10**12
"""Keeping everything is a flaw from 1 TB on that tiers would save."""


def validation(plan: CheckpointPlan, figures: Figures) -> Flaw | None:
    """A damaged checkpoint is found when it is needed, or never."""
    told = plan.validation
    without = [
        (told.checksums, "checksums", "put a checksum of every file into the manifest"),
        (told.checked_on_load, "a check on load", "check them before anything is loaded"),
        (told.finite_check, "a check for NaN", "look for NaN and odd norms before the commit"),
        (
            told.restore_drills,
            "restore drills",
            "restore the newest checkpoint regularly on a separate small job and compare the loss on a "
            "fixed batch",
        ),
    ]
    missing = [(name, advice) for value, name, advice in without if value is False]
    if not missing:
        return None
    names = [name for name, _ in missing]
    change = "; ".join(advice for _, advice in missing)
    return Flaw(
        severity=Severity.MEDIUM if names == ["a check for NaN"] else Severity.HIGH,
        changes_run=True,
        what="Nothing is validated" if len(missing) == len(without) else f"Validation lacks {listed(names)}",
        why="A truncated file, a flipped bit or NaN in the weights shows only when the checkpoint is "
        "needed, after the failure; a flipped bit may load without an error and never show.",
        cost="Each failure that meets a bad checkpoint falls back one interval more, "
        f"{gpu_hours(plan.run.gpus * plan.schedule.every_s / 3600.0, plan.run)}, if the one before is good.",
        change=f"{change[0].upper()}{change[1:]}.",
    )


def layout(plan: CheckpointPlan, figures: Figures) -> Flaw | None:
    """A restart needs as many GPUs as wrote the checkpoint."""
    if plan.restore.layout is not Layout.SAME or plan.run.gpus == 1:
        return None
    spares = plan.restore.num_spare_nodes
    kept = f" beyond the {spares} spare ones" if spares else ""
    return Flaw(
        severity=Severity.MEDIUM if spares else Severity.HIGH,
        changes_run=False,
        what=f"A restore needs the same {plan.run.gpus:,}-GPU layout",
        why=f"If a node dies{kept} and there is no other, the job cannot restart until hardware is repaired.",
        cost=f"{gpu_hours(plan.run.gpus, plan.run)} for every hour of waiting for one node.",
        change="Store tensors with their global shapes, so that a checkpoint can be resharded to another layout"
        + ("." if spares else ", and keep hot spare nodes."),
    )


def keeps_everything(plan: CheckpointPlan, figures: Figures) -> Flaw | None:
    """Nothing is ever deleted, and it adds up."""
    if plan.retention.keep is not Keep.ALL:
        return None
    advised = num_kept(
        Retention(keep=Keep.SOME, keep_last=KEEP_LAST, one_per_s=DAY_S),
        plan.run.length_s,
        figures.num_checkpoints,
    )
    all_bytes = figures.num_checkpoints * figures.checkpoint_bytes
    few_bytes = (advised or 0) * figures.checkpoint_bytes
    if all_bytes - few_bytes < WORTH_DELETING_BYTES:
        return None
    return Flaw(
        severity=Severity.MEDIUM,
        changes_run=False,
        what=f"Every checkpoint is kept: {tb(all_bytes)}",
        why=f"{figures.num_checkpoints:,} checkpoints of {format_bytes(figures.checkpoint_bytes)}. Most "
        "serve nobody once a newer one is known to be good.",
        cost=f"{tb(all_bytes)} by the end of the run against {tb(few_bytes)} for the last {KEEP_LAST} and "
        "one a day" + _storage_price(plan, all_bytes - few_bytes) + ".",
        change=f"Keep the last {KEEP_LAST}, one a day, and named milestones; delete the rest once a newer "
        "one is verified.",
        saved_bytes=all_bytes - few_bytes,
    )


def _storage_price(plan: CheckpointPlan, num_bytes: float) -> str:
    price = plan.storage.price_per_tb_month
    return "" if not price else f"; the difference costs {format_money(num_bytes / 1e12 * price)} a month"


def keeps_too_few(plan: CheckpointPlan, figures: Figures) -> Flaw | None:
    """Nothing is left if the newest one is bad."""
    kept = plan.retention
    if (
        kept.keep is not Keep.SOME
        or kept.keep_last is None
        or kept.keep_last > 1
        or kept.one_per_s is not None
    ):
        return None
    return Flaw(
        severity=Severity.HIGH,
        changes_run=False,
        what="Only the newest checkpoint is kept" if kept.keep_last else "No checkpoint is kept",
        why="If it turns out damaged, or was written after the run had gone wrong, there is nothing to go "
        "back to.",
        cost=f"The whole run, up to {gpu_hours(figures.gpu_hours, plan.run)}.",
        change=f"Keep the last {KEEP_LAST} and one a day.",
    )


def deletes_unverified(plan: CheckpointPlan, figures: Figures) -> Flaw | None:
    """An old checkpoint goes before the new one is known to load."""
    if plan.retention.deletes_only_after_verified is not False:
        return None
    return Flaw(
        severity=Severity.HIGH,
        changes_run=False,
        what="Old checkpoints are deleted before a newer one is known to load",
        why="A fault of the writer damages all that stand at that moment; nobody notices until one is needed.",
        cost="As much work as the oldest one that is left is old; at worst the whole run, "
        f"{gpu_hours(figures.gpu_hours, plan.run)}.",
        change="Delete a checkpoint only when a newer one was read back and verified.",
    )


def space(plan: CheckpointPlan, figures: Figures) -> Flaw | None:
    """What is kept does not fit."""
    room, kept = plan.storage.space_bytes, _kept(plan, figures)
    if room is None or kept is None:
        return None
    held = (kept + 1) * figures.checkpoint_bytes  # the old one goes after the new one is there
    if held <= room:
        return None
    fits = max(0, room // figures.checkpoint_bytes)
    when = ""
    if plan.retention.keep is Keep.ALL and fits:
        when = f", after {format_duration(fits * plan.schedule.every_s)}"
    return Flaw(
        severity=Severity.HIGH,
        changes_run=False,
        what=f"The storage is full after {fits:,} checkpoints{when}",
        why=f"{kept:,} checkpoints and the one being written are {tb(held)}; there is room for {tb(room)}.",
        cost="From then on saves fail, and each failure costs all work since the last good one.",
        change="Keep fewer, or get more room. An alert on failed saves comes too late here.",
    )


def _kept(plan: CheckpointPlan, figures: Figures) -> int | None:
    if plan.retention.keep is Keep.ALL:
        return figures.num_checkpoints
    if plan.retention.keep is Keep.SOME:
        return num_kept(plan.retention, plan.run.length_s, figures.num_checkpoints)
    return None


def monitoring(plan: CheckpointPlan, figures: Figures) -> Flaw | None:
    """Checkpoints can stay away without anybody noticing."""
    alerts = plan.monitoring.alerts
    if alerts is None or Alert.AGE in alerts or Alert.MISSED in alerts:
        return None
    return Flaw(
        severity=Severity.MEDIUM,
        changes_run=False,
        what="Nothing is monitored" if not alerts else "Nobody is told when checkpoints stay away",
        why="Nobody knows when a checkpoint fails, how long writes take, or how much work a failure would "
        "lose.",
        cost="If saves fail unseen for a day, the next failure costs that day: "
        f"{gpu_hours(24.0 * plan.run.gpus, plan.run)}.",
        change="Alert on a missed or failed checkpoint, on write time, and on the time since the last good "
        "one.",
    )


def write_time_alert(plan: CheckpointPlan, figures: Figures) -> Flaw | None:
    """Storage slows down unseen."""
    alerts = plan.monitoring.alerts
    if not alerts or Alert.WRITE_TIME in alerts:
        return None
    return Flaw(
        severity=Severity.LOW,
        changes_run=False,
        what="No alert on write time",
        why="Storage that slows down shows in write times long before a checkpoint is missed.",
        cost="Cannot be told from the plan.",
        change="Alert on write times above twice the usual one.",
    )
