"""Rules on what checkpointing costs: GPU-hours lost to stalls, rework, crowded storage. Pure functions of the plan."""

from rampmeter.core.interval import WRITE_FLOOR
from rampmeter.core.units import format_bytes, format_duration
from rampmeter.review.figures import Figures, Outlook
from rampmeter.review.finding import Flaw, Severity
from rampmeter.review.plan import CheckpointPlan, Mode, Phase, WhenBusy
from rampmeter.review.wording import gpu_hours, gpus, minutes, percent, seconds

HIGH_SHARE = 0.01
MEDIUM_SHARE = 0.002
"""Shares of the run from which a loss is high or medium; less is no flaw."""

RESTART_ALLOWANCE = 5.0
"""A restart may cost so many times more: part of it, to notice and to load, nobody can avoid."""

NVME_BYTES_PER_S = 2e9
"""What one local NVMe takes, for the example in the advice."""


def no_progress(plan: CheckpointPlan, figures: Figures) -> Flaw | None:
    """Nothing is left for training, whatever the formula says beyond 100 %."""
    planned, best = figures.planned, figures.best
    if planned is None or best is None or figures.ends:
        return None
    if not figures.mtbf_is_given and planned.waste.write < 1.0:
        return None
    lost = planned.waste
    change = "Come back faster, make the checkpoint cheaper, or find nodes that fail less often."
    if best.waste.total < 1.0:
        change = f"Write every {minutes(best.interval_s)}: then {percent(best.lost)} is lost."
    return Flaw(
        severity=Severity.CRITICAL,
        changes_run=False,
        what="The run hardly gets on: next to nothing is left for training",
        why=f"Stalls take {percent(lost.write)} of the time, work that is done again {percent(lost.rework)}, restarts "
        f"{percent(lost.restart)}.",
        cost=f"By the formula, which overstates large losses, the whole run: {gpu_hours(figures.gpu_hours, plan.run)}.",
        change=change,
        lost_gpu_hours=figures.gpu_hours,
    )


def restart(plan: CheckpointPlan, figures: Figures) -> Flaw | None:
    """Coming back costs a large part of the run, which no interval can change."""
    planned, restart_s = figures.planned, plan.run.restart_s
    if planned is None or restart_s is None or not figures.mtbf_is_given or not figures.ends:
        return None
    share = planned.waste.restart
    severity = _severity(share / RESTART_ALLOWANCE)
    if severity is None:
        return None
    lost = share * figures.gpu_hours
    return Flaw(
        severity=severity,
        changes_run=False,
        what=f"Coming back takes {minutes(restart_s)} after each failure",
        why=f"Restarts take {percent(share)} of the run, {percent(share / planned.waste.total)} of all that "
        "is lost. No interval and no cheaper checkpoint can reduce it.",
        cost=f"About {gpu_hours(lost, plan.run)} with one failure in {format_duration(figures.mtbf_s)}; half the time "
        "is half of it.",
        change="Measure where the time goes (noticing, new nodes, image, loading, warm-up): spare nodes that wait, "
        "images pulled beforehand, checkpoints read from local NVMe or from the memory of other ranks.",
        lost_gpu_hours=lost,
    )


def stall(plan: CheckpointPlan, figures: Figures) -> Flaw | None:
    """Training stops while storage takes a checkpoint. What another interval would save is no fault of the stall."""
    planned, gained = figures.planned, figures.gained_by_copying
    judged = gained if interval(plan, figures) is None else min(gained, figures.gained_beside_best)
    severity = _severity(judged)
    if plan.schedule.mode is not Mode.SYNCHRONOUS or planned is None or severity is None:
        return None
    alone = plan.storage.num_servers == 1
    waits = (
        f"{percent(planned.waste.write)} of the run the GPUs wait for storage: {seconds(planned.stall_s)} "
        f"in every {format_duration(planned.interval_s)}."
    )
    return Flaw(
        severity=severity,
        changes_run=False,
        what=f"{'The GPU stands' if plan.run.gpus == 1 else f'All {gpus(plan.run.gpus)} stand'} still for "
        f"{seconds(planned.stall_s)} at each checkpoint" + (", waiting for one server" if alone else ""),
        why=f"{waits} {_alone(plan)}" if alone else waits,
        cost=_cost_of_stall(plan, figures, planned),
        change=_two_stages(plan, figures),
        lost_gpu_hours=gained * figures.gpu_hours,
    )


def one_server(plan: CheckpointPlan, figures: Figures) -> Flaw | None:
    """One server carries all checkpoints; where it also stalls training, `stall` says so."""
    if plan.storage.num_servers != 1 or stall(plan, figures) is not None:
        return None
    return Flaw(
        severity=Severity.MEDIUM,
        changes_run=False,
        what="One server takes all checkpoints",
        why=_alone(plan),
        cost=f"{gpu_hours(plan.run.gpus, plan.run)} for every hour in which a failure waits for it.",
        change="Write to storage that loses a server without stopping, or keep a second copy elsewhere.",
    )


def _severity(share: float) -> Severity | None:
    if share >= HIGH_SHARE:
        return Severity.HIGH
    return Severity.MEDIUM if share >= MEDIUM_SHARE else None


def _alone(plan: CheckpointPlan) -> str:
    name = f" ({plan.storage.name})" if plan.storage.name else ""
    return (
        f"One server{name} is a single point of failure for the whole job: while it is down nothing is "
        "saved and nothing can restart."
    )


def _cost_of_stall(plan: CheckpointPlan, figures: Figures, planned: Outlook) -> str:
    copied = figures.copied
    text = (
        f"As planned {percent(planned.lost)} of the run is lost, about "
        f"{gpu_hours(planned.lost * figures.gpu_hours, plan.run)}. With a pause of {copied.stall_s:.3g} s "
        f"the best interval is {minutes(copied.interval_s)} and {percent(copied.lost)} is lost: about "
        f"{gpu_hours(figures.gained_by_copying * figures.gpu_hours, plan.run)} saved."
    )
    if figures.write_s is None:
        return text
    at_risk = figures.write_s / figures.mtbf_s
    return (
        f"{text} (As long as a copy takes {seconds(figures.write_s)} to be durable, {percent(at_risk)} of "
        "the run is lost again.)"
    )


def _two_stages(plan: CheckpointPlan, figures: Figures) -> str:
    text = "Two stages: copy to host memory, seconds of pause; then write in the background"
    if plan.run.nodes is None:
        return f"{text}, to storage with the bandwidth of all nodes."
    per_node = figures.checkpoint_bytes / plan.run.nodes
    return (
        f"{text}, first to local NVMe ({format_bytes(per_node)} per node, about "
        f"{per_node / NVME_BYTES_PER_S:.2g} s at 2 GB/s), from there to storage with the bandwidth of all "
        f"{plan.run.nodes:,} nodes."
    )


def one_writer(plan: CheckpointPlan, figures: Figures) -> Flaw | None:
    """One process gathers and writes everything."""
    if plan.storage.sharded is not False or plan.run.gpus == 1:
        return None
    return Flaw(
        severity=Severity.MEDIUM,
        changes_run=False,
        what="One rank writes the whole checkpoint",
        why="The network and the memory of one host carry the state of all; the write takes as long as "
        "that host needs.",
        cost=f"{format_bytes(figures.checkpoint_bytes)} through one host at each checkpoint.",
        change="Let every rank write its own shard.",
    )


def interval(plan: CheckpointPlan, figures: Figures) -> Flaw | None:
    """Another interval would lose noticeably less. Where writes do not fit into it, `write_time` says so."""
    severity = _severity(figures.gained_by_best)
    planned, best = figures.planned, figures.best
    if severity is None or planned is None or best is None or not figures.mtbf_is_given:
        return None
    if write_time(plan, figures) is not None or no_progress(plan, figures) is not None:
        return None
    word = "frequent" if plan.schedule.every_s < best.interval_s else "rare"
    saved = figures.gained_by_best * figures.gpu_hours
    return Flaw(
        severity=severity,
        changes_run=False,
        what=f"Checkpoints are too {word}: every {format_duration(plan.schedule.every_s)}, best is "
        f"{minutes(best.interval_s)}",
        why=f"Stalls take {percent(planned.waste.write)} of the run, work that is done again "
        f"{percent(planned.waste.rework)}. {_why_best(figures, planned)}",
        cost=f"{percent(planned.lost)} of the run is lost, {percent(best.lost)} at the best interval: about "
        f"{gpu_hours(saved, plan.run)} saved.",
        change=f"Write every {minutes(best.interval_s)}; measure stall and failures, and follow them.",
        lost_gpu_hours=saved,
    )


def _why_best(figures: Figures, planned: Outlook) -> str:
    if figures.best_is_floor and figures.write_s is not None:
        return (
            f"A write takes {seconds(figures.write_s)}; the shortest interval that leaves room for it is "
            "1.25 times that."
        )
    return (
        f"With a stall of {seconds(planned.stall_s)} and a failure every {format_duration(figures.mtbf_s)} "
        "the sum is least at about sqrt(2 x stall x time between failures)."
    )


def write_time(plan: CheckpointPlan, figures: Figures) -> Flaw | None:
    """A background write is not done, or only just, when the next one is due."""
    write_s, every_s = figures.write_s, plan.schedule.every_s
    if plan.schedule.mode is not Mode.ASYNCHRONOUS or write_s is None or WRITE_FLOOR * write_s <= every_s:
        return None
    over = write_s > every_s
    return Flaw(
        severity=Severity.HIGH if over else Severity.MEDIUM,
        changes_run=False,
        what=f"A write takes {seconds(write_s)}, the next is due after {format_duration(every_s)}",
        why="Writes pile up, and asynchronous checkpoints turn into synchronous ones or into a full host "
        "memory."
        if over
        else "There is no room for a slow day: once storage slows by a quarter, writes pile up.",
        cost=f"Checkpoints come every {format_duration(write_s)} at best; all figures here use that."
        if over
        else "None on a good day; on a slow one they come less often, and the figures here do not hold.",
        change=f"Write every {format_duration(WRITE_FLOOR * write_s)} or less often (1.25 write times), or "
        "write to faster storage.",
    )


def queue(plan: CheckpointPlan, figures: Figures) -> Flaw | None:
    """Snapshots wait in host memory while storage is slow."""
    if plan.schedule.mode is not Mode.ASYNCHRONOUS or plan.schedule.when_busy is not WhenBusy.QUEUE:
        return None
    return Flaw(
        severity=Severity.MEDIUM,
        changes_run=False,
        what="A save that is due during a write is queued",
        why="When storage slows down, snapshots gather in host memory until a node runs out of it, and the "
        "newest one waits behind older ones that nobody needs any more.",
        cost=f"{format_bytes(figures.checkpoint_bytes / plan.run.gpus)} of host memory per GPU and waiting "
        "snapshot.",
        change="Skip it and count it: the next one is newer.",
    )


def herd(plan: CheckpointPlan, figures: Figures) -> Flaw | None:
    """All jobs of a storage write in the same minute once they have started together."""
    others = plan.storage.num_other_jobs
    if not others or plan.schedule.phase is not Phase.START:
        return None
    jobs = others + 1
    cost = "All jobs then wait for one another at each checkpoint."
    if figures.write_s is not None:
        cost = (
            f"If the others are like this one, a write takes {format_duration(figures.write_s * jobs)} "
            f"instead of {seconds(figures.write_s)} after a common start."
        )
    return Flaw(
        severity=Severity.HIGH,
        changes_run=False,
        what=f"{jobs} jobs share the storage, and the first checkpoint comes at a fixed time after the start",
        why="After a maintenance window or an incident all jobs start together, write together, and go on "
        "doing so. Each sees a slow storage and changes its interval alone.",
        cost=cost,
        change="Begin at a random moment of the first interval, or let one party that sees all jobs give "
        "out the times.",
    )
