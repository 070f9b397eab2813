"""A probe as people and programs read it: a table, the capacity that may be set, and why it may be wrong."""

import json
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from rampmeter.core.units import format_bytes, format_duration, format_rate
from rampmeter.probing.figures import Round, best, careful_capacity, doubts, unsure
from rampmeter.probing.measuring import SMALL_BYTES, Limits
from rampmeter.progress import Bar

_COLUMNS = 80
_SHARE = (
    "This is what one host gets, now, beside whoever else writes. It is no figure of the cluster: probe "
    "from several hosts at once to see what they get together."
)
_LEGEND = (
    "Rates are of all writers together: written, handed over to the file system; 2nd half, of the time of writing; "
    f"durable, with the last sync. A small file has {SMALL_BYTES // 1024} KiB and is synced."
)
_CACHES = "Reading back may be served by a cache of the storage."


def intention(directory: Path, limits: Limits, writers: Sequence[int]) -> str:
    """What is about to happen."""
    numbers = " then ".join(f"{number}" for number in writers)
    return (
        f"writes at most {format_bytes(limits.max_bytes)} to {directory} with {numbers} "
        f"writer{'s' if list(writers) != [1] else ''}, for about {format_duration(limits.duration_s)}, "
        "reads it back and removes it"
    )


def as_text(directory: Path, rounds: Sequence[Round]) -> str:
    """What follows from it and why that may be wrong, then the table and how to read it."""
    chosen = best(rounds)
    several = f"{chosen.num_writers} writers" if chosen.num_writers > 1 else "one writer"
    setting = careful_capacity(chosen.sustained_bytes_per_s)
    value = "is what this comes to, but see below" if unsure(rounds) else "would be a careful value"
    advice = f'capacity = "{setting}" {value}: the sustained rate of {several}, not the peak.'
    table = [_line(_TITLES), *(_row(measured) for measured in rounds)]
    parts = (
        [f"Probe of {directory}"],
        _wrapped(advice, *doubts(rounds), _SHARE),
        table,
        _wrapped(_LEGEND, _CACHES),
    )
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def _wrapped(*sentences: str) -> list[str]:
    return [line for sentence in sentences for line in textwrap.wrap(sentence, _COLUMNS)]


_COLUMN_WIDTHS = (7, 11, 11, 11, 10, 11, 11)
_TITLES = ("writers", "written at", "2nd half", "durable at", "last sync", "small file", "read back")


def _line(cells: Sequence[str]) -> str:
    return " ".join(f"{cell:>{width}}" for cell, width in zip(cells, _COLUMN_WIDTHS, strict=True))


def _row(measured: Round) -> str:
    late = measured.late_bytes_per_s
    return _line(
        (
            f"{measured.num_writers}",
            format_rate(measured.written_bytes_per_s),
            "-" if late is None else format_rate(late),
            format_rate(measured.durable_bytes_per_s),
            _short(measured.sync_s),
            _short(measured.small_file_s) if measured.num_small_files else "-",
            format_rate(measured.read_bytes_per_s),
        )
    )


def _short(duration_s: float) -> str:
    return "below 1 ms" if duration_s < 0.001 else format_duration(duration_s)


def as_json(directory: Path, rounds: Sequence[Round]) -> str:
    """One object; rates in bytes per second, durations in seconds."""
    chosen = best(rounds)
    told = [
        asdict(measured)
        | {
            "written_bytes_per_s": measured.written_bytes_per_s,
            "durable_bytes_per_s": measured.durable_bytes_per_s,
            "sustained_bytes_per_s": measured.sustained_bytes_per_s,
            "read_bytes_per_s": measured.read_bytes_per_s,
        }
        for measured in rounds
    ]
    text = json.dumps(
        {
            "directory": str(directory),
            "capacity": careful_capacity(chosen.sustained_bytes_per_s),
            "sustained_bytes_per_s": chosen.sustained_bytes_per_s,
            "num_writers": chosen.num_writers,
            "doubts": list(doubts(rounds)),
            "rounds": told,
        }
    )
    return f"{text}\n"


def watcher(bar: Bar | None) -> Callable[[str, float], None]:
    """Shows progress where there is a terminal."""
    return bar.show if bar is not None else lambda _what, _share: None
