"""What a plan does well, in a sentence each. Only what its own words or the arithmetic say."""

from collections.abc import Callable

from rampmeter.core.units import format_duration
from rampmeter.review.figures import Figures, missing_parts, num_kept
from rampmeter.review.plan import Alert, CheckpointPlan, CommitStep, Keep, Layout, Mode, Phase, Resume
from rampmeter.review.resuming import commit_order
from rampmeter.review.spending import write_time
from rampmeter.review.wording import minutes, percent, seconds, tb

NEAR_BEST = 0.05
"""An interval is near its best if the loss is at most this much (of itself) above the least."""

_WORTH_CHANGING = 0.01
"""From this share of the run on a stall is worth the work of making it shorter."""


def what_is_good(plan: CheckpointPlan, figures: Figures) -> tuple[str, ...]:
    """Sentences, in the order of the plan's sections."""
    return tuple(sentence for praise in _PRAISES if (sentence := praise(plan, figures)))


def _state(plan: CheckpointPlan, figures: Figures) -> str | None:
    if plan.size.saved is None or missing_parts(plan.size) or figures.needed_bytes is None:
        return None
    return "All that a restart needs is saved: weights, optimizer, step, scheduler, random states."


def _interval(plan: CheckpointPlan, figures: Figures) -> str | None:
    planned, best = figures.planned, figures.best
    if planned is None or best is None or not figures.mtbf_is_given or not figures.ends:
        return None
    if write_time(plan, figures) is not None:
        return None
    if figures.gained_by_best > NEAR_BEST * best.lost:
        return None
    lost = planned.waste
    lever = lost.write > _WORTH_CHANGING and lost.write >= lost.restart
    stall = " The cost of a checkpoint is the lever, not the interval." if lever else ""
    return (
        f"The interval fits its cost: {format_duration(plan.schedule.every_s)} against a best of "
        f"{minutes(best.interval_s)} for a stall of {seconds(planned.stall_s)}; the best one would gain "
        f"{percent(figures.gained_by_best)} of the run.{stall}"
    )


def _asynchronous(plan: CheckpointPlan, figures: Figures) -> str | None:
    if plan.schedule.mode is not Mode.ASYNCHRONOUS or plan.schedule.snapshot_is_copy is not True:
        return None
    return "Training stops for a copy to host memory only; the write goes on in the background."


def _phase(plan: CheckpointPlan, figures: Figures) -> str | None:
    if not plan.storage.num_other_jobs or plan.schedule.phase not in (Phase.RANDOM, Phase.COORDINATED):
        return None
    return "Jobs that share the storage do not write in step after a common start."


def _sharded(plan: CheckpointPlan, figures: Figures) -> str | None:
    if plan.storage.sharded is not True:
        return None
    return "Every rank writes its own shard: the right building block, no host has to carry the whole write."


def _pointer(plan: CheckpointPlan, figures: Figures) -> str | None:
    if plan.commit.order is None or CommitStep.POINTER not in plan.commit.order:
        return None
    moved_well = commit_order(plan, figures) is None
    last = "and it moves last" if moved_well else "the right building block, once it moves last"
    return f"One pointer names the newest checkpoint, {last}."


def _data(plan: CheckpointPlan, figures: Figures) -> str | None:
    if plan.data.resume is not Resume.EXACT or plan.data.tested is not True:
        return None
    return "The data goes on exactly where it stopped, and a test proves it."


def _layout(plan: CheckpointPlan, figures: Figures) -> str | None:
    if plan.restore.layout is not Layout.ANY:
        return None
    return "A checkpoint can be restored on another number of ranks: a missing node does not hold up the job."


def _retention(plan: CheckpointPlan, figures: Figures) -> str | None:
    kept = num_kept(plan.retention, plan.run.length_s, figures.num_checkpoints)
    if (
        plan.retention.keep is not Keep.SOME
        or kept is None
        or plan.retention.deletes_only_after_verified is not True
    ):
        return None
    return (
        f"{tb(kept * figures.checkpoint_bytes)} are kept of "
        f"{tb(figures.num_checkpoints * figures.checkpoint_bytes)} written, and nothing is deleted before a "
        "newer one is verified."
    )


def _validation(plan: CheckpointPlan, figures: Figures) -> str | None:
    told = plan.validation
    if not (told.checksums and told.checked_on_load and told.restore_drills):
        return None
    return "Checksums are checked on load, and restores are practised before they are needed."


def _monitoring(plan: CheckpointPlan, figures: Figures) -> str | None:
    alerts = plan.monitoring.alerts or ()
    if Alert.WRITE_TIME not in alerts or not {Alert.AGE, Alert.MISSED} & set(alerts):
        return None
    return "Somebody is told when checkpoints stay away or get slow."


_PRAISES: tuple[Callable[[CheckpointPlan, Figures], str | None], ...] = (
    _state,
    _interval,
    _asynchronous,
    _phase,
    _sharded,
    _pointer,
    _data,
    _layout,
    _retention,
    _validation,
    _monitoring,
)
