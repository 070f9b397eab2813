"""The sweep as a picture. Imports matplotlib only when it draws."""

from pathlib import Path
from typing import Any

from rampmeter.core.errors import ConfigError
from rampmeter.planner.findings import Findings
from rampmeter.planner.sweep import Point, points
from rampmeter.planner.text import percent, span

_COLOURS = ("#0072b2", "#e69f00", "#bbbbbb")  # Okabe and Ito: safe for colour-blind eyes
_PER_DOUBLING = 24
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400
_TICKS = [
    number * unit_s
    for unit_s, numbers in (
        (1, (1, 2, 5, 10, 30)),
        (_MINUTE_S, (1, 2, 5, 10, 30)),
        (_HOUR_S, (1, 2, 5, 12)),
        (_DAY_S, (1, 2, 7, 30, 365)),
    )
    for number in numbers
]


def draw(path: Path, findings: Findings) -> None:
    """Write the picture to `path`; ConfigError if that cannot be written."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra that only the picture needs

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    curve = points(findings.asked.job, findings.found, per_doubling=_PER_DOUBLING)
    figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
    try:
        _curve(axes, curve)
        _marks(axes, curve)
        figure.savefig(path, format="png", dpi=120)
    except OSError as error:
        raise ConfigError(f"option --png: cannot write {path}: {error.strerror}") from error
    finally:
        plt.close(figure)


def _curve(axes: Any, curve: list[Point]) -> None:
    axes.stackplot(
        [point.interval_s for point in curve],
        [100.0 * point.waste.write for point in curve],
        [100.0 * point.waste.rework for point in curve],
        [100.0 * point.waste.restart for point in curve],
        labels=["writing checkpoints", "redoing lost work", "restarting"],
        colors=_COLOURS,
    )
    axes.set_xscale("log")
    axes.set_xlim(curve[0].interval_s, curve[-1].interval_s)
    axes.set_ylim(0.0, min(100.0, 100.0 * max(point.waste.total for point in curve)))
    ticks = [tick for tick in _TICKS if curve[0].interval_s <= tick <= curve[-1].interval_s]
    axes.set_xticks(ticks, [span(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("interval between checkpoints")
    axes.set_ylabel("% of the run lost")


def _marks(axes: Any, curve: list[Point]) -> None:
    for point in curve:
        if point.note:
            label = f"{point.note}: {span(point.interval_s)}, {percent(point.waste.total)} lost"
            style = "-" if point.note == "best" else "--"
            axes.axvline(point.interval_s, color="black", linestyle=style, label=label)
    axes.legend(loc="upper center")
