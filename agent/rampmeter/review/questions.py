"""What a plan does not say and its reviewer needs to know. Silence is asked about, never held against the plan."""

from collections.abc import Callable

from rampmeter.core.interval import PRIOR_GPU_HOURS_PER_FAILURE
from rampmeter.core.units import format_bytes, format_duration
from rampmeter.review.figures import Figures
from rampmeter.review.plan import CheckpointPlan, CommitStep, Keep, Mode, PointerUpdate, Resume
from rampmeter.review.wording import seconds

_MUCH_MORE = 1.5
"""A total so many times of what is needed is more than a margin."""

_MUCH_SHORTER = 0.75
"""Below this share of the write time a synchronous stall contradicts it."""


def open_questions(plan: CheckpointPlan, figures: Figures) -> tuple[str, ...]:
    """Questions to the author, the ones that change most of the figures first."""
    return tuple(question for ask in _ASKED if (question := ask(plan, figures)))


def _failures(plan: CheckpointPlan, figures: Figures) -> str | None:
    if plan.run.mtbf_measured and figures.mtbf_is_given:
        return None
    source = (
        f"the plan's figure, one in {format_duration(figures.mtbf_s)}, is used here"
        if figures.mtbf_is_given
        else f"one in {format_duration(figures.mtbf_s)} is used here ({PRIOR_GPU_HOURS_PER_FAILURE:,.0f} "
        "GPU-hours per failure)"
    )
    return f"Which rate of interruptions was measured on this cluster? {source[0].upper()}{source[1:]}."


def _restart(plan: CheckpointPlan, figures: Figures) -> str | None:
    if plan.run.restart_s is not None:
        return None
    return (
        "How long does a restart take from the failure to the first new step (scheduling, loading, "
        "warm-up)? It is not in the figures here, and no interval can reduce it."
    )


def _size(plan: CheckpointPlan, figures: Figures) -> str | None:
    needed, planned = figures.needed_bytes, figures.planned_bytes
    if needed is not None and planned is not None and planned > _MUCH_MORE * needed:
        return (
            f"What else is in the {format_bytes(planned)}? Parameters, precision and optimizer account for "
            f"{format_bytes(needed)}."
        )
    if needed is not None:
        return None
    return (
        "How many parameters, in which precision, with which optimizer? The plan's total is taken as it is."
    )


def _saved(plan: CheckpointPlan, figures: Figures) -> str | None:
    if plan.size.saved is not None:
        return None
    return "What exactly is saved: master weights, optimizer state, step, scheduler, random states?"


def _mode(plan: CheckpointPlan, figures: Figures) -> str | None:
    if plan.schedule.mode is None:
        return "Does training stop for the write, or for a copy to host memory only?"
    if plan.schedule.mode is Mode.ASYNCHRONOUS and plan.schedule.stall_s is None:
        return "For how long does training stop at each checkpoint? Without it the loss cannot be worked out."
    return _stall_or_write(plan, figures)


def _stall_or_write(plan: CheckpointPlan, figures: Figures) -> str | None:
    stall_s, write_s = plan.schedule.stall_s, figures.write_s
    if plan.schedule.mode is not Mode.SYNCHRONOUS or stall_s is None or write_s is None:
        return None
    if stall_s >= _MUCH_SHORTER * write_s:
        return None
    return (
        f"Training stops for the whole write, for {seconds(stall_s)} as the plan says, but by size and bandwidth a "
        f"write takes {seconds(write_s)}: which is right? The stall is used here."
    )


def _bandwidth(plan: CheckpointPlan, figures: Figures) -> str | None:
    if plan.storage.write_bytes_per_s is not None:
        return None
    return "What write bandwidth does the storage sustain? `rampmeter probe DIR` measures it from one host."


def _snapshot(plan: CheckpointPlan, figures: Figures) -> str | None:
    if plan.schedule.mode is not Mode.ASYNCHRONOUS or plan.schedule.snapshot_is_copy is not None:
        return None
    return (
        "Is the snapshot a true copy, or does the background write read tensors that training goes on to "
        "change?"
    )


def _when_busy(plan: CheckpointPlan, figures: Figures) -> str | None:
    if plan.schedule.mode is not Mode.ASYNCHRONOUS or plan.schedule.when_busy is not None:
        return None
    return "What happens to a save that is due while the one before is still being written?"


def _others(plan: CheckpointPlan, figures: Figures) -> str | None:
    if plan.storage.num_other_jobs is None:
        return "Who else writes to this storage, and is the bandwidth a share of it or all of it?"
    if plan.storage.num_other_jobs and plan.schedule.phase is None:
        return "What keeps the jobs on this storage from all writing in the same minute after a common start?"
    return None


def _commit(plan: CheckpointPlan, figures: Figures) -> str | None:
    if plan.commit.order is not None:
        return None
    return "In which order are shards, manifest and pointer written, and who waits for whom?"


def _pointer(plan: CheckpointPlan, figures: Figures) -> str | None:
    order = plan.commit.order or ()
    if CommitStep.POINTER not in order or plan.commit.pointer_update is PointerUpdate.RENAME:
        return None
    return (
        None
        if plan.commit.pointer_update is PointerUpdate.IN_PLACE
        else "Is the pointer replaced by an atomic rename?"
    )


def _directory(plan: CheckpointPlan, figures: Figures) -> str | None:
    if plan.commit.directory is not None:
        return None
    return "Is a checkpoint ever written over an older one?"


def _data(plan: CheckpointPlan, figures: Figures) -> str | None:
    if plan.data.resume is None:
        return "Where does the data loader go on after a restart?"
    if plan.data.resume is Resume.EXACT and plan.data.tested is None:
        return "Does a test show that a resumed run sees the same next batch?"
    return None


def _parallelism(plan: CheckpointPlan, figures: Figures) -> str | None:
    if plan.run.parallelism is not None:
        return None
    return (
        "What does the parallelism look like (tensor, pipeline, data), and does anything outside the ranks "
        "need saving (data loader workers, a parameter server)?"
    )


def _layout(plan: CheckpointPlan, figures: Figures) -> str | None:
    if plan.restore.layout is not None or plan.run.gpus == 1:
        return None
    return "Can a checkpoint be restored on another number of ranks?"


def _spares(plan: CheckpointPlan, figures: Figures) -> str | None:
    if plan.restore.num_spare_nodes is not None:
        return None
    return "Is there a pool of spare nodes, and who replaces failed ones?"


def _retention(plan: CheckpointPlan, figures: Figures) -> str | None:
    if plan.retention.keep is None:
        return "What is kept, and for how long?"
    if plan.retention.keep is Keep.SOME and plan.retention.deletes_only_after_verified is None:
        return "How is a checkpoint known to load before an older one is deleted?"
    return None


def _milestones(plan: CheckpointPlan, figures: Figures) -> str | None:
    if plan.retention.milestones is not None:
        return None
    return "Will intermediate checkpoints be evaluated or fine-tuned? That decides which milestones to keep."


def _validation(plan: CheckpointPlan, figures: Figures) -> str | None:
    told = plan.validation
    answers = {
        "are there checksums": told.checksums,
        "are they checked on load": told.checked_on_load,
        "is anybody looking for NaN before the commit": told.finite_check,
        "is a restore practised": told.restore_drills,
    }
    open_ones = [words for words, value in answers.items() if value is None]
    return f"How is a checkpoint validated: {', '.join(open_ones)}?" if open_ones else None


def _monitoring(plan: CheckpointPlan, figures: Figures) -> str | None:
    if plan.monitoring.alerts is not None:
        return None
    return "Who is told when a checkpoint is missed, fails, or takes long?"


_ASKED: tuple[Callable[[CheckpointPlan, Figures], str | None], ...] = (
    _failures,
    _restart,
    _size,
    _saved,
    _mode,
    _bandwidth,
    _snapshot,
    _when_busy,
    _others,
    _commit,
    _pointer,
    _directory,
    _data,
    _parallelism,
    _layout,
    _spares,
    _retention,
    _milestones,
    _validation,
    _monitoring,
)
