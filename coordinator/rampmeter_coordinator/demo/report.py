"""The end of the demo in words: both acts side by side, what the figures mean, and what did not hold. Text only."""

from collections.abc import Callable, Mapping

from rich.console import Group
from rich.table import Table
from rich.text import Text

from rampmeter.core.units import format_duration, format_rate
from rampmeter_coordinator.demo.figures import ActFigures, Figures, problems
from rampmeter_coordinator.demo.scenario import Scenario


def report(found: Figures, scenario: Scenario) -> Group:
    """Everything that is printed at the end."""
    return Group(_table(found), Text(), _meaning(found, scenario), Text(), verdict(found))


def _table(found: Figures) -> Table:
    table = Table(title="Side by side", title_justify="left", title_style="bold")
    table.add_column("")
    table.add_column("1: the herd", justify="right")
    table.add_column("2: metered", justify="right", style="green")
    for title, cell in _ROWS.items():
        table.add_row(title, cell(found.herd), cell(found.metered))
    table.add_section()
    for title, value in _kill_rows(found).items():
        table.add_row(title, "", value)
    return table


_ROWS: Mapping[str, Callable[[ActFigures], str]] = {
    "peak concurrent writers": lambda act: str(act.peak_writers),
    "peak offered load / capacity": lambda act: f"{act.peak_over_capacity:.2f}",
    "write time, median": lambda act: f"{act.p50_write_s:.2f} s",
    "write time, 95th percentile": lambda act: f"{act.p95_write_s:.2f} s",
    "checkpoints committed": lambda act: str(act.num_commits),
    "time lost, all together": lambda act: f"{act.lost.total:.2%}",
    "    training stalled by checkpoints": lambda act: f"{act.lost.stall:.2%}",
    "    work thrown away by failures": lambda act: f"{act.lost.rework:.2%}",
}


def _kill_rows(found: Figures) -> dict[str, str]:
    lost = "did not resume" if found.steps_lost is None else f"{found.steps_lost} steps"
    rows = {
        f"{found.victim} killed: work lost": lost,
        "losses equal an uninterrupted run's, bit for bit": "yes" if found.bit_exact else "NO",
        "newest checkpoints that restored intact": f"{found.num_restored} of {found.num_jobs}",
        "most allowed to all jobs together / capacity": f"{found.metered.peak_rights:.2f}",
    }
    if found.coordinator_down_s is not None:
        rows["coordinator killed: down for"] = f"{found.coordinator_down_s:.1f} s"
        rows["steps that this cost the other jobs"] = str(found.steps_repeated_elsewhere)
        rows["leases that this cost"] = str(found.leases_broken)
    return rows


def _meaning(found: Figures, scenario: Scenario) -> Text:
    capacity, mtbf = format_rate(scenario.capacity_bytes_per_s), format_duration(scenario.mtbf_s)
    text = Text(style="dim")
    text.append(
        f"Offered load: what all writers together would send. In the herd each offers the whole {capacity}, "
        "metered what its lease allows.\n"
        "Write time: from snapshot to durable; training goes on meanwhile. Waiting for a turn comes before the "
        "snapshot and ages nothing.\n"
        "Time lost: stalls are measured. Failures are modelled: each job fails once in "
        f"M = {mtbf} and falls back to its newest durable snapshot, which is T/2 + W old on average. T and W are "
        "measured, as the mean age of that snapshot. The kill itself is not counted: only act 2 has one."
    )
    if found.too_busy:
        text.append(
            f"\nThis machine was too busy: a step took {max(found.herd.step_s, found.metered.step_s):.2f} s "
            f"instead of {scenario.step_s:g} s, so the figures say as much about it as about the jobs. "
            "The time lost is only shown, not judged.",
            style="bold yellow",
        )
    elif not found.judges_time:
        text.append("\nActs this short hold too few checkpoints to judge the time lost: it is only shown.")
    return text


def verdict(found: Figures) -> Text:
    """One sentence, or what did not hold."""
    failed = problems(found)
    if failed:
        return Text("\n".join(f"FAILED: {problem}" for problem in failed), style="bold red")
    return Text(_success(found.herd, found.metered), style="bold green")


def in_short(act: ActFigures, title: str) -> str:
    """An act in one sentence, for the time until the table."""
    writers = "1 writer" if act.peak_writers == 1 else f"up to {act.peak_writers} writers at once"
    return f"{title}: {writers}, 95 % of writes done within {act.p95_write_s:.1f} s"


def _success(herd: ActFigures, metered: ActFigures) -> str:
    return (
        f"The same jobs on the same storage: offered load {herd.peak_over_capacity:.1f} -> "
        f"{metered.peak_over_capacity:.1f} times its capacity, 95 % of writes within {metered.p95_write_s:.1f} s "
        f"instead of {herd.p95_write_s:.1f} s, time lost {herd.lost.total:.1%} -> {metered.lost.total:.1%}."
    )
