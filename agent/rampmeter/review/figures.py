"""The arithmetic of a plan: what a checkpoint weighs, how long it takes, what share of the run is lost.

All loss comes from `core.interval.waste`. What the plan does not say is left out of the sums (a restart time) or taken
from a prior (the failure rate), and the figures say so.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rampmeter.core.interval import WRITE_FLOOR, Waste, mtbf, period, waste
from rampmeter.review.plan import CheckpointPlan, Mode, Optimizer, Part, Precision, Retention, Size

COPY_STALL_S = 5.0
"""What a copy to host memory stops training for, agreement of all ranks included: careful up to 10 GB per GPU."""

HOST_COPY_BYTES_PER_S = 2e9
"""What one GPU copies to pageable host memory per second at least: decides the pause from 10 GB per GPU on."""

_WEIGHT_BYTES: Mapping[Precision, int] = {
    Precision.BF16_MIXED: 2,
    Precision.FP16_MIXED: 2,
    Precision.FP32: 4,
    Precision.BF16: 2,
}
_MOMENTS: Mapping[Optimizer, int] = {Optimizer.ADAM: 2, Optimizer.SGD_MOMENTUM: 1, Optimizer.SGD: 0}
_MIXED = (Precision.BF16_MIXED, Precision.FP16_MIXED)
_MASTER_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """One way to run the schedule: interval, stall per checkpoint, and what is lost. Shares of the run."""

    interval_s: float
    stall_s: float
    waste: Waste

    @property
    def lost(self) -> float:
        """The share of the run that is lost; the first-order formula can say more than all of it."""
        return min(1.0, self.waste.total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What follows from a plan by arithmetic. None where the plan does not say enough.

    needed_bytes  what a checkpoint must hold to resume; planned_bytes  what the plan takes it to be
    write_s       checkpoint_bytes over the write bandwidth
    planned       the schedule as planned; best  the best interval for the same stall
    copied        the best interval if training stops for a copy to host memory only
    """

    gpu_hours: float
    mtbf_s: float
    mtbf_is_given: bool
    needed_bytes: int | None
    planned_bytes: int | None
    checkpoint_bytes: int
    write_s: float | None
    planned: Outlook | None
    best: Outlook | None
    copied: Outlook
    num_checkpoints: int

    @property
    def best_is_floor(self) -> bool:
        """The write decides the best interval, not stall and failures."""
        return self.best is not None and self.best.interval_s > period(self.best.stall_s, self.mtbf_s)

    @property
    def gained_by_best(self) -> float:
        """The share of the run that the best interval would save."""
        if self.planned is None or self.best is None:
            return 0.0
        return self.planned.lost - self.best.lost

    @property
    def gained_by_copying(self) -> float:
        """The share of the run that a short pause at its own best interval would save."""
        return 0.0 if self.planned is None else self.planned.lost - self.copied.lost

    @property
    def gained_beside_best(self) -> float:
        """What of it the best interval for the stall as it is does not save."""
        return 0.0 if self.best is None else self.best.lost - self.copied.lost

    @property
    def ends(self) -> bool:
        """As planned something is left for training; True where that cannot be told."""
        return self.planned is None or self.planned.waste.total < 1.0


def figures(plan: CheckpointPlan) -> Figures:
    """All figures of a plan."""
    needed, planned_bytes = needed_bytes(plan.size), plan.size.planned_bytes
    checkpoint_bytes = max(needed or 0, planned_bytes or 0)
    rate = plan.storage.write_bytes_per_s
    write_s = None if rate is None else checkpoint_bytes / rate
    mtbf_s = plan.run.mtbf_s or mtbf(plan.run.gpus)
    return Figures(
        gpu_hours=plan.run.gpus * plan.run.length_s / 3600.0,
        mtbf_s=mtbf_s,
        mtbf_is_given=plan.run.mtbf_s is not None,
        needed_bytes=needed,
        planned_bytes=planned_bytes,
        checkpoint_bytes=checkpoint_bytes,
        write_s=write_s,
        planned=_planned(plan, write_s, mtbf_s),
        best=_best(plan, write_s, mtbf_s),
        copied=_copied(plan, checkpoint_bytes, mtbf_s),
        num_checkpoints=int(plan.run.length_s // plan.schedule.every_s),
    )


def bytes_per_parameter(size: Size) -> int | None:
    """What each parameter needs so that training can resume: weights, master weights, moments. None = cannot be told.

    Mixed precision with Adam: 2 + 4 + 4 + 4 = 14. Weights that are not saved beside their master copy are not needed.
    """
    if size.precision is None or size.optimizer is None:
        return None
    mixed = size.precision in _MIXED
    from_master = mixed and size.saved is not None and Part.MASTER_WEIGHTS in size.saved
    weights = 0 if from_master and Part.WEIGHTS not in (size.saved or ()) else _WEIGHT_BYTES[size.precision]
    moment = _MASTER_BYTES if mixed else _WEIGHT_BYTES[size.precision]
    return weights + (_MASTER_BYTES if mixed else 0) + _MOMENTS[size.optimizer] * moment


def needed_bytes(size: Size) -> int | None:
    """What a checkpoint must hold. None where the plan does not say what is trained, and how."""
    per_parameter = bytes_per_parameter(size)
    return None if size.parameters is None or per_parameter is None else size.parameters * per_parameter


def missing_parts(size: Size) -> tuple[Part, ...]:
    """What training needs to resume and the plan does not save; empty where it does not say what is saved."""
    if size.saved is None:
        return ()
    return tuple(part for part in _needed_parts(size) if part not in size.saved)


def _needed_parts(size: Size) -> list[Part]:
    saved = size.saved or ()
    needed = [] if Part.MASTER_WEIGHTS in saved else [Part.WEIGHTS]
    if size.precision in _MIXED:
        needed.append(Part.MASTER_WEIGHTS)
    if size.optimizer in (Optimizer.ADAM, Optimizer.SGD_MOMENTUM):
        needed.append(Part.OPTIMIZER)
    needed += [Part.STEP, Part.SCHEDULER]
    if size.precision is Precision.FP16_MIXED:
        needed.append(Part.GRAD_SCALER)
    return [*needed, Part.RNG]


def num_kept(retention: Retention, length_s: float, num_checkpoints: int) -> int | None:
    """How many checkpoints stand at the end of the run; milestones are not counted. None = cannot be told."""
    if retention.keep_last is None and retention.one_per_s is None:
        return None
    regular = 0 if retention.one_per_s is None else int(length_s // retention.one_per_s)
    return min(num_checkpoints, (retention.keep_last or 0) + regular)


def _stall_s(plan: CheckpointPlan, write_s: float | None) -> float | None:
    if plan.schedule.stall_s is not None:
        return plan.schedule.stall_s
    return write_s if plan.schedule.mode is Mode.SYNCHRONOUS else None


def _planned(plan: CheckpointPlan, write_s: float | None, mtbf_s: float) -> Outlook | None:
    stall_s = _stall_s(plan, write_s)
    if stall_s is None:
        return None
    behind_s = _behind_s(plan, write_s)  # where writes do not fit, checkpoints come as often as they do
    return _outlook(plan, max(plan.schedule.every_s, stall_s, behind_s), stall_s, behind_s, mtbf_s)


def _best(plan: CheckpointPlan, write_s: float | None, mtbf_s: float) -> Outlook | None:
    stall_s = _stall_s(plan, write_s)
    if stall_s is None:
        return None
    behind_s = _behind_s(plan, write_s)
    best_s = max(period(stall_s, mtbf_s), WRITE_FLOOR * behind_s, stall_s)
    return _outlook(plan, best_s, stall_s, behind_s, mtbf_s)


def _copied(plan: CheckpointPlan, checkpoint_bytes: int, mtbf_s: float) -> Outlook:
    """Without the time until the copy is durable, which depends on where it is written."""
    stall_s = max(COPY_STALL_S, checkpoint_bytes / plan.run.gpus / HOST_COPY_BYTES_PER_S)
    return _outlook(plan, period(stall_s, mtbf_s), stall_s, 0.0, mtbf_s)


def _behind_s(plan: CheckpointPlan, write_s: float | None) -> float:
    """How long the newest snapshot is not durable yet while training goes on."""
    return 0.0 if plan.schedule.mode is not Mode.ASYNCHRONOUS or write_s is None else write_s


def _outlook(
    plan: CheckpointPlan, interval_s: float, stall_s: float, behind_s: float, mtbf_s: float
) -> Outlook:
    restart_s = plan.run.restart_s or 0.0
    return Outlook(
        interval_s=interval_s,
        stall_s=stall_s,
        waste=waste(interval_s, stall_s, mtbf_s, write_s=behind_s, restart_s=restart_s),
    )
