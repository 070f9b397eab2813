"""Plain text for 80 columns: sections with aligned columns, wrapped sentences, numbers as people say them."""

import textwrap
from collections.abc import Sequence

WIDTH = 79
_INDENT = "  "
_GAP = 2


def percent(share: float, digits: int = 1) -> str:
    """A fraction as `14.8 %`; what is not quite 0 or 1 is not shown as if it were: `< 0.1 %`, `> 99.9 %`."""
    if share > 10.0:
        return "> 1,000 %"
    last = 10.0 ** -(digits + 2)
    if 0.0 < share < last / 2.0:
        return f"< {100.0 * last:.{digits}f} %"
    if 1.0 - last / 2.0 < share < 1.0:
        return f"> {100.0 * (1.0 - last):.{digits}f} %"
    return f"{100.0 * share:.{digits}f} %"


def span(duration_s: float) -> str:
    """A duration in one unit with three digits: `90 s`, `5.2 min`, `9 h`, `10 d`."""
    if duration_s < 1.0:
        return f"{duration_s * 1000:.3g} ms" if duration_s else "0 s"
    if duration_s < 119.5:
        return f"{duration_s:.3g} s"
    if duration_s < 7170.0:
        return f"{duration_s / 60:.3g} min"
    hours = duration_s / 3600.0
    if hours < 239.5:
        return f"{hours:.3g} h"
    days = hours / 24.0
    return f"{days:.3g} d" if days < 999.5 else f"{days:,.0f} d"


def hours(count: float) -> str:
    """Hours of a run: `844.7 h`."""
    return f"{count:,.1f} h"


def few(count: float) -> str:
    """A number that need not be whole: `83`, `1.3`, `0.00048`."""
    return f"{count:,.0f}" if count >= 10.0 else f"{count:.2g}"


def paragraph(*sentences: str) -> str:
    """Sentences as one wrapped block."""
    return textwrap.fill(
        " ".join(sentence for sentence in sentences if sentence), WIDTH, break_on_hyphens=False
    )


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A title with the heads of the columns behind it, then the rows: first column left, the others right."""
    lines = [[title, *head], *[[_INDENT + row[0], *row[1:]] for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(_line(line, widths) for line in lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        cell.rjust(width) if column else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return (" " * _GAP).join([first, *others]).rstrip()
