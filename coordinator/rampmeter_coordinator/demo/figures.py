"""The figures of a demo and what they say: two acts side by side, the kill, the restores. Pure.

The demo has succeeded only if nothing that it promises failed; `problems` is the list of what did.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rampmeter_coordinator.demo import observer
from rampmeter_coordinator.demo.history import (
    Committed,
    CoordinatorBack,
    CoordinatorKilled,
    Digest,
    Failed,
    Loss,
    Record,
    of_kind,
)
from rampmeter_coordinator.demo.scenario import Scenario

_BUSY_FROM = 1.25
"""From steps this much longer than the emulated device takes on, the machine was too busy to believe the figures."""

_JUDGED_FROM_S = 24.0
"""Acts of fewer than three intervals hold too few checkpoints to compare what they cost, or the slowest of them: of ten
saves the p95 is the worst, and that is the one which waited for a coordinator that had been killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """A played act: its history, and from when to when it was played."""

    metered: bool
    begin_s: float
    end_s: float
    records: list[Record]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActFigures:
    """One act. peak_over_capacity is offered load, peak_rights what all agents together were allowed at most."""

    peak_writers: int
    peak_over_capacity: float
    peak_rights: float
    p50_write_s: float
    p95_write_s: float
    lost: observer.Lost
    num_commits: int
    num_failed: int
    step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """The newest checkpoint of one job of act 2, restored by a fresh process. step 0 = it had none."""

    job: str
    step: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All that the table, the JSON and the exit code are made of."""

    herd: ActFigures
    metered: ActFigures
    victim: str
    steps_lost: int | None
    bit_exact: bool
    num_jobs: int
    num_restored: int
    steps_repeated_elsewhere: int
    leases_broken: int
    coordinator_down_s: float | None
    step_s: float
    act_s: float

    @property
    def judges_time(self) -> bool:
        """Whether the acts were long enough, and the machine free enough, to compare all times in them."""
        return self.act_s >= _JUDGED_FROM_S and not self.too_busy

    @property
    def too_busy(self) -> bool:
        """Whether the machine had no room for the jobs: then the figures are about the machine."""
        return max(self.herd.step_s, self.metered.step_s) > _BUSY_FROM * self.step_s


def figures(scenario: Scenario, herd: Act, metered: Act, restores: Sequence[Restore], victim: str) -> Figures:
    """Everything, from the two histories and what the fresh processes restored."""
    down = of_kind(metered.records, CoordinatorKilled)
    back = of_kind(metered.records, CoordinatorBack)
    elsewhere = [r for r in metered.records if isinstance(r, Loss) and r.job != victim]
    return Figures(
        herd=act_figures(scenario, herd),
        metered=act_figures(scenario, metered),
        victim=victim,
        steps_lost=observer.steps_lost(metered.records),
        bit_exact=bool(observer.same_losses(herd.records, metered.records, victim)),
        num_jobs=len(scenario.jobs),
        num_restored=sum(_is_whole(metered.records, restore) for restore in restores),
        steps_repeated_elsewhere=len(elsewhere) - len({(r.job, r.step) for r in elsewhere}),
        leases_broken=observer.leases_broken(metered.records, down[0].at_s) if down else 0,
        coordinator_down_s=back[0].at_s - down[0].at_s if down and back else None,
        step_s=scenario.step_s,
        act_s=scenario.act_s,
    )


def act_figures(scenario: Scenario, act: Act) -> ActFigures:
    """One act by itself."""
    capacity = scenario.capacity_bytes_per_s
    saves = observer.flushes(act.records)
    writes_s = observer.write_times(saves)
    offered = observer.offered_over_time(act.records, capacity, metered=act.metered)
    return ActFigures(
        peak_writers=round(observer.peak(observer.writers_over_time(saves))),
        peak_over_capacity=observer.peak(offered),
        peak_rights=observer.peak(observer.allowed_over_time(act.records)) / capacity,
        p50_write_s=observer.percentile(writes_s, 0.5),
        p95_write_s=observer.percentile(writes_s, 0.95),
        lost=observer.lost(act.records, act.begin_s, act.end_s, scenario.mtbf_s),
        num_commits=len(of_kind(act.records, Committed)),
        num_failed=len(of_kind(act.records, Failed)),
        step_s=observer.step_time(act.records),
    )


def _is_whole(records: list[Record], restore: Restore) -> bool:
    """The restored state is the one that training had at that step, and nothing newer was committed."""
    mine = [record for record in records if record.job == restore.job]
    newest = max((c.step for c in of_kind(mine, Committed)), default=0)
    digests = {record.digest for record in of_kind(mine, Digest) if record.step == restore.step}
    return restore.step >= newest > 0 and digests == {restore.digest}


def problems(found: Figures) -> list[str]:
    """What the demo promised and did not show; empty if it succeeded."""
    herd, metered = found.herd, found.metered
    checks = {
        f"only {found.num_restored} of {found.num_jobs} newest checkpoints were restored as they were saved": (
            found.num_restored == found.num_jobs
        ),
        f"{found.victim} was killed and did not resume": found.steps_lost is not None,
        f"{found.victim} resumed, but not with the losses of its uninterrupted run": found.bit_exact,
        f"the other jobs repeated {found.steps_repeated_elsewhere} steps": found.steps_repeated_elsewhere
        == 0,
        f"{found.leases_broken} leases did not outlive the coordinator": found.leases_broken == 0,
        "the jobs were allowed more than the storage's capacity": metered.peak_rights <= 1.0,
        f"{metered.num_failed} metered saves failed": metered.num_failed == 0,
        "the metered act did not offer less load": metered.peak_over_capacity < herd.peak_over_capacity,
        "the metered act did not write faster": metered.p50_write_s < herd.p50_write_s,
        "the slowest metered saves were not faster": (
            not found.judges_time or metered.p95_write_s < herd.p95_write_s
        ),
        "the metered act did not lose less time": (
            not found.judges_time or metered.lost.total < herd.lost.total
        ),
    }
    return [problem for problem, holds in checks.items() if not holds]


def as_json(found: Figures) -> dict[str, Any]:
    """The shape that `rampmeter demo --json` promises."""
    return {
        "herd": _act_json(found.herd),
        "metered": _act_json(found.metered),
        "kill": {"steps_lost": found.steps_lost, "bit_exact": found.bit_exact},
    }


def _act_json(act: ActFigures) -> dict[str, Any]:
    return {
        "peak_writers": act.peak_writers,
        "peak_over_capacity": round(act.peak_over_capacity, 3),
        "p50_write_s": round(act.p50_write_s, 3),
        "p95_write_s": round(act.p95_write_s, 3),
        "lost_ratio": round(act.lost.total, 5),
    }
