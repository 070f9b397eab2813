"""Both acts as one picture: bandwidth against capacity, and who wrote when. Imports matplotlib only when it draws."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rampmeter_coordinator.demo import observer
from rampmeter_coordinator.demo.figures import Act
from rampmeter_coordinator.demo.history import (
    Chunk,
    CoordinatorBack,
    CoordinatorKilled,
    Killed,
    Restored,
    of_kind,
)
from rampmeter_coordinator.demo.scenario import Scenario
from rampmeter_coordinator.model.pool import PoolConfig

_BIN_S = 0.25
_BLUE, _ORANGE, _GREY, _RED = (
    "#0072b2",
    "#e69f00",
    "#bbbbbb",
    "#d55e00",
)  # Okabe and Ito: safe for colour-blind eyes
_MB = 1e6


def draw(path: Path, scenario: Scenario, herd: Act, metered: Act) -> None:
    """Write the picture to `path`; its ending decides the format. OSError if that cannot be written."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra that only the demo has

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(
        4, 1, figsize=(12, 9), sharex=True, height_ratios=(3, 2, 3, 2), layout="constrained"
    )
    figure.suptitle(
        f"{len(scenario.jobs)} training jobs, one storage of {scenario.capacity_bytes_per_s / _MB:.0f} MB/s (emulated)",
        fontsize=15,
        fontweight="bold",
    )
    try:
        _draw_act(
            axes[:2],
            scenario,
            herd,
            "Act 1, the herd: all start together, each saves on its own interval",
            _ORANGE,
        )
        _draw_act(
            axes[2:],
            scenario,
            metered,
            "Act 2, metered: each has its own place in the interval, and asks before it snapshots",
            _BLUE,
        )
        axes[3].set_xlim(left=0)
        axes[3].set_xlabel(
            "seconds since the start of the act      (bars: bytes go to the storage; grey: from snapshot to durable)"
        )
        figure.savefig(path, dpi=120)
    finally:
        plt.close(figure)


def _draw_act(axes: Sequence[Any], scenario: Scenario, act: Act, title: str, colour: str) -> None:
    bandwidth, jobs = axes
    saves = observer.flushes(act.records)
    end_s = max([act.end_s, *(save.durable_s or save.end_s for save in saves)])
    _draw_bandwidth(bandwidth, scenario, act, end_s, colour)
    writers = round(observer.peak(observer.writers_over_time(saves)))
    p95_s = observer.percentile(observer.write_times(saves), 0.95)
    bandwidth.set_title(
        f"{title}\nup to {writers} writer{'s' if writers != 1 else ''} at once, 95 % of writes within {p95_s:.1f} s",
        loc="left",
        fontsize=11,
    )
    _draw_jobs(jobs, scenario, act, saves, colour)
    _draw_incidents(jobs, scenario, act)


def _draw_bandwidth(axes: Any, scenario: Scenario, act: Act, end_s: float, colour: str) -> None:
    rates = observer.bandwidth_over_time(of_kind(act.records, Chunk), act.begin_s, end_s, _BIN_S)
    times_s = [index * _BIN_S for index in range(len(rates) + 1)]
    axes.stairs([rate / _MB for rate in rates], times_s, fill=True, color=colour, alpha=0.75)
    capacity = scenario.capacity_bytes_per_s / _MB
    axes.axhline(capacity, color="black", linewidth=1.2, linestyle="--")
    axes.annotate("capacity", (0, capacity), xytext=(4, 3), textcoords="offset points", fontsize=9)
    if act.metered:
        pool = PoolConfig(name="default", capacity_bytes_per_s=scenario.capacity_bytes_per_s)
        budget = pool.budget_bytes_per_s / _MB
        axes.axhline(budget, color="black", linewidth=0.8, linestyle=":")
        label = f"at most granted: {pool.utilisation:.0%}"
        axes.annotate(label, (0, budget), xytext=(4, 8), textcoords="offset points", fontsize=9)
    axes.set_ylim(0, 1.3 * capacity)
    axes.set_ylabel("written, MB/s")
    axes.grid(axis="x", alpha=0.3)


def _draw_jobs(axes: Any, scenario: Scenario, act: Act, saves: list[observer.Flush], colour: str) -> None:
    """A bar for each save from snapshot to durable; thin where it does not write."""
    for row, job in enumerate(scenario.jobs):
        mine = [save for save in saves if save.job == job.name]
        for save in mine:
            done_s = save.durable_s or save.end_s
            axes.broken_barh(
                [(save.snapshot_s - act.begin_s, done_s - save.snapshot_s)], (row - 0.1, 0.2), color=_GREY
            )
            axes.broken_barh(
                [(save.begin_s - act.begin_s, save.end_s - save.begin_s)], (row - 0.36, 0.72), color=colour
            )
    axes.set_yticks(range(len(scenario.jobs)), [job.name for job in scenario.jobs], fontsize=8)
    axes.set_ylim(len(scenario.jobs) - 0.4, -0.6)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)


def _draw_incidents(axes: Any, scenario: Scenario, act: Act) -> None:
    rows = {job.name: row for row, job in enumerate(scenario.jobs)}
    resumed = {record.job: record.at_s for record in of_kind(act.records, Restored) if record.life > 1}
    for kill in of_kind(act.records, Killed):
        at_s, back_s = kill.at_s - act.begin_s, resumed.get(kill.job, kill.at_s) - act.begin_s
        row = rows[kill.job]
        axes.plot([at_s, back_s], [row, row], color=_RED, linewidth=1.5, linestyle=":")
        axes.plot([at_s], [row], marker="X", color=_RED, markersize=9)
        label = {
            "xytext": (-8, -3),
            "textcoords": "offset points",
            "ha": "right",
        }  # no save was running there
        axes.annotate("SIGKILL", (at_s, row), fontsize=8, color=_RED, **label)
        if kill.job in resumed:
            axes.plot([back_s], [row], marker="|", color=_RED, markersize=9)
            label |= {"xytext": (6, -3), "ha": "left"}
            axes.annotate("resumed", (back_s, row), fontsize=8, color=_RED, **label)
    for down, back in zip(
        of_kind(act.records, CoordinatorKilled), of_kind(act.records, CoordinatorBack), strict=False
    ):
        axes.axvspan(down.at_s - act.begin_s, back.at_s - act.begin_s, color=_RED, alpha=0.2)
        axes.annotate(
            "coordinator killed",
            (down.at_s - act.begin_s, len(rows) - 0.7),
            fontsize=8,
            color=_RED,
            ha="right",
        )
