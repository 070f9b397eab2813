"""Rules on what a restart gives: the run that would have been, another one, or none. Pure functions of the plan.

A rule speaks only where the plan's own words decide; where the plan is silent there is a question instead.
"""

import math
from collections.abc import Mapping

from rampmeter.core.units import format_bytes, format_duration, format_rate
from rampmeter.review.figures import Figures, bytes_per_parameter, missing_parts
from rampmeter.review.finding import Flaw, Severity
from rampmeter.review.plan import (
    CheckpointPlan,
    CommitStep,
    Directory,
    Mode,
    Part,
    PointerUpdate,
    Resume,
    Size,
)
from rampmeter.review.wording import about, days, gpu_hours, gpus, listed, percent, seconds

UNDERSTATED = 0.95
"""Below this share of what is needed a planned size is wrong and not rounded."""

_NO_RUN = frozenset({Part.WEIGHTS, Part.MASTER_WEIGHTS, Part.OPTIMIZER})
_WORDS: Mapping[Part, str] = {
    Part.WEIGHTS: "weights",
    Part.MASTER_WEIGHTS: "fp32 master weights",
    Part.OPTIMIZER: "optimizer state",
    Part.STEP: "step counter",
    Part.SCHEDULER: "learning-rate scheduler",
    Part.GRAD_SCALER: "gradient scaler",
    Part.RNG: "random states",
}
_WITHOUT: Mapping[str, frozenset[Part]] = {
    "Without weights there is nothing to resume.": frozenset({Part.WEIGHTS}),
    "Without the optimizer state no run can be resumed as it was: the moments begin anew and the loss "
    "jumps.": frozenset({Part.OPTIMIZER}),
    "Without the fp32 master weights it goes on from rounded ones.": frozenset({Part.MASTER_WEIGHTS}),
    "Without step counter and scheduler it goes on at the wrong learning rate, silently.": frozenset(
        {Part.STEP, Part.SCHEDULER}
    ),
    "Without the gradient scaler the loss scale begins anew and steps are skipped.": frozenset(
        {Part.GRAD_SCALER}
    ),
    "Without the random states the noise is another one: as good in statistics, not the same run.": frozenset(
        {Part.RNG}
    ),
}


def commit_order(plan: CheckpointPlan, figures: Figures) -> Flaw | None:
    """A checkpoint is real before all of it is there, or nothing says when it is real."""
    order = plan.commit.order
    what = None if order is None else _order_fault(order, num_ranks=plan.run.gpus)
    if what is None:
        return None
    return Flaw(
        severity=Severity.CRITICAL,
        changes_run=True,
        what=what,
        why="A failure during the write, when storage is under most stress, leaves a partial checkpoint "
        "that looks like a whole one. The restart crashes or, worse, loads a mix of old and missing shards.",
        cost=_cost_of_torn(plan, figures),
        change="Write all shards into a new directory, wait until every rank is done, write a manifest "
        "with the size and checksum of every shard, and move the pointer last, by an atomic rename. "
        "Without a manifest a checkpoint does not exist.",
    )


def _order_fault(order: tuple[CommitStep, ...], *, num_ranks: int) -> str | None:
    seals = [step for step in (CommitStep.POINTER, CommitStep.MANIFEST) if step in order]
    if not seals:
        return "Nothing tells a whole checkpoint from a partial one"
    before = order[: order.index(seals[0])]
    if CommitStep.SHARDS not in before:
        return f"The {seals[0]} is set before the data is there"
    if num_ranks > 1 and CommitStep.ALL_RANKS_DONE not in before:
        return f"The {seals[0]} does not wait for all ranks"
    if CommitStep.MANIFEST in order[len(before) + 1 :]:
        return "The pointer is set before the manifest is there"
    return None


def _cost_of_torn(plan: CheckpointPlan, figures: Figures) -> str:
    more = gpu_hours(plan.run.gpus * plan.schedule.every_s / 3600.0, plan.run)
    falls_back = f"falls back at least one interval more, {more}, if the checkpoint before can be found"
    if figures.write_s is None:
        return f"Each failure during a write {falls_back}."
    share = min(1.0, figures.write_s / plan.schedule.every_s)
    failures = plan.run.length_s / figures.mtbf_s * share
    return (
        f"Writing goes on for {percent(share)} of the time: {about(failures)} failures of this run fall "
        f"into a write even if they come at random. Each {falls_back}."
    )


def pointer_update(plan: CheckpointPlan, figures: Figures) -> Flaw | None:
    """The pointer can be found half written."""
    if plan.commit.pointer_update is not PointerUpdate.IN_PLACE:
        return None
    return Flaw(
        severity=Severity.HIGH,
        changes_run=True,
        what="The pointer is written in place",
        why="A crash in the middle leaves an empty or torn pointer: every checkpoint is whole and a "
        "restart finds none, or starts from the beginning without a word.",
        cost=f"Somebody has to notice and find the newest whole checkpoint by hand while "
        f"{gpus(plan.run.gpus)} wait: {gpu_hours(plan.run.gpus, plan.run)} an hour.",
        change="Write the new pointer to a temporary name, sync it, rename it over the old one, sync the "
        "directory.",
    )


def overwritten(plan: CheckpointPlan, figures: Figures) -> Flaw | None:
    """A new checkpoint replaces an old one file by file."""
    if plan.commit.directory is not Directory.REUSED:
        return None
    return Flaw(
        severity=Severity.CRITICAL,
        changes_run=True,
        what="A checkpoint is written over an older one",
        why="Until the last shard is there the old checkpoint is gone and the new one is not whole. After "
        "a failure in between, new and old shards lie side by side and may load without an error.",
        cost=_cost_of_torn(plan, figures),
        change="Write each checkpoint into a directory of its own and delete old ones after the new one is "
        "committed.",
    )


def state(plan: CheckpointPlan, figures: Figures) -> Flaw | None:
    """A restart needs more than what is saved."""
    missing = missing_parts(plan.size)
    if not missing:
        return None
    if _NO_RUN & set(missing):
        severity = Severity.CRITICAL
    else:
        severity = Severity.LOW if set(missing) == {Part.RNG} else Severity.HIGH
    named = listed([_WORDS[part] for part in missing])
    sizes = f": {_needed(figures)}" if _understated(figures) else ""
    reasons = [why for why, parts in _WITHOUT.items() if parts & set(missing)]
    return Flaw(
        severity=severity,
        changes_run=True,
        what=f"{_lacks(plan.size, missing)}{sizes}",
        why=" ".join([*reasons, _size_reason(plan, figures)] if sizes else reasons),
        cost=_cost_of_size(plan, figures) if sizes else _cost_of_state(severity),
        change=f"Also save {named}"
        + (", and the gradient scaler if there is one." if severity is Severity.CRITICAL else ".")
        + (f" Plan with {format_bytes(figures.checkpoint_bytes)}." if sizes else ""),
    )


def _cost_of_state(severity: Severity) -> str:
    if severity is Severity.LOW:
        return (
            "None in quality; a resumed run cannot be compared bit for bit with one that was not interrupted."
        )
    return "Not one of hours: the run after the first restart is another one than the run before."


def _lacks(held: Size, missing: tuple[Part, ...]) -> str:
    """What there is or what there is not, whichever is the shorter list."""
    if held.saved and len(held.saved) < len(missing):
        return f"A checkpoint holds only {listed([_WORDS[part] for part in held.saved])}"
    return f"A checkpoint lacks {listed([_WORDS[part] for part in missing])}"


def size(plan: CheckpointPlan, figures: Figures) -> Flaw | None:
    """All that is needed is saved, and is larger than the plan believes."""
    if not _understated(figures) or missing_parts(plan.size):
        return None
    return Flaw(
        severity=Severity.HIGH,
        changes_run=False,
        what=f"A checkpoint is larger than planned: {_sizes(figures)}",
        why=_size_reason(plan, figures),
        cost=_cost_of_size(plan, figures),
        change=f"Plan with {format_bytes(figures.checkpoint_bytes)}.",
    )


def _understated(figures: Figures) -> bool:
    planned, needed = figures.planned_bytes, figures.needed_bytes
    return planned is not None and needed is not None and planned < UNDERSTATED * needed


def _sizes(figures: Figures) -> str:
    return f"{format_bytes(figures.checkpoint_bytes)}, not {format_bytes(figures.planned_bytes or 0)}"


def _needed(figures: Figures) -> str:
    return (
        f"{format_bytes(figures.checkpoint_bytes)} are needed, not {format_bytes(figures.planned_bytes or 0)}"
    )


def _size_reason(plan: CheckpointPlan, figures: Figures) -> str:
    times = figures.checkpoint_bytes / (figures.planned_bytes or 1)
    return (
        f"Training keeps {bytes_per_parameter(plan.size)} bytes per parameter: every time and size in the "
        f"plan is {about(times)} times too small."
    )


def _cost_of_size(plan: CheckpointPlan, figures: Figures) -> str:
    rate = plan.storage.write_bytes_per_s
    if rate is None or figures.write_s is None:
        return "Every cost in the plan follows from the size; all figures here use the right one."
    believed_s = (figures.planned_bytes or 0) / rate
    return (
        f"A write takes {seconds(figures.write_s)} at {format_rate(rate)}, not {seconds(believed_s)}. All "
        "figures here use the right size."
    )


def data_position(plan: CheckpointPlan, figures: Figures) -> Flaw | None:
    """The data loader begins its epoch again after each failure."""
    if plan.data.resume is not Resume.EPOCH_START:
        return None
    return Flaw(
        severity=Severity.CRITICAL,
        changes_run=True,
        what="The data loader restarts at the beginning of the epoch",
        why="After each failure the model sees the first part of the epoch once more: that part is trained "
        "on many times, the end hardly ever. The loss goes down as if nothing were wrong. It is no longer "
        "the run that was designed.",
        cost=_cost_of_epochs(plan, figures),
        change="Save the position of the data loader with each checkpoint, for each rank (shard, offset, "
        "shuffle seed), go on exactly there, and test that a resumed run sees the same next batch as one "
        "that was not interrupted.",
    )


def _cost_of_epochs(plan: CheckpointPlan, figures: Figures) -> str:
    """An epoch ends only in a stretch without failure: chance e^(-E/M), first one expected after M (e^(E/M) - 1)."""
    if plan.data.epoch_s is None:
        return (
            "Not one of hours. How much data is never seen depends on the length of an epoch, which the "
            "plan does not say."
        )
    failures = plan.data.epoch_s / figures.mtbf_s
    epoch = format_duration(plan.data.epoch_s)
    if failures > math.log(1e6):
        return f"An epoch of {epoch} meets {about(failures)} failures: none is ever finished."
    return (
        f"An epoch of {epoch} meets {about(failures)} failures. The chance that one passes without is "
        f"{about(math.exp(-failures) * 100)} %; the end of an epoch is reached once in "
        f"{days(figures.mtbf_s * math.expm1(failures))} on average, in a run of "
        f"{format_duration(plan.run.length_s)}."
    )


def resume_test(plan: CheckpointPlan, figures: Figures) -> Flaw | None:
    """The data position is saved, and nobody has shown that it works."""
    if plan.data.resume is not Resume.EXACT or plan.data.tested is not False:
        return None
    return Flaw(
        severity=Severity.MEDIUM,
        changes_run=True,
        what="No test shows that a resumed run sees the same next batch",
        why="Loader workers, prefetching and shuffle buffers hold state of their own. Where one is "
        "forgotten, data is skipped or repeated at each restart, and nothing looks wrong.",
        cost=f"Not one of hours: {about(plan.run.length_s / figures.mtbf_s)} restarts are to be expected in "
        "this run.",
        change="Test it: run, stop, resume, and compare the next batches and losses with a run that was "
        "not stopped.",
    )


def snapshot(plan: CheckpointPlan, figures: Figures) -> Flaw | None:
    """The background write reads tensors that training changes meanwhile."""
    if plan.schedule.mode is not Mode.ASYNCHRONOUS or plan.schedule.snapshot_is_copy is not False:
        return None
    return Flaw(
        severity=Severity.CRITICAL,
        changes_run=True,
        what="The background write reads tensors that training goes on to change",
        why="Parts of different steps end up in one checkpoint. It loads without an error and is subtly wrong.",
        cost="Not one of hours: every checkpoint may be torn, and none can be trusted.",
        change="Copy all state to host memory before training goes on, and test that a resume from such a "
        "checkpoint equals one from a synchronous save.",
    )
