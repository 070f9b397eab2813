"""Figures of a review as people read them: rounded to what an estimate is worth."""

from collections.abc import Sequence

from rampmeter.core.units import format_duration, format_money
from rampmeter.review.plan import Run


def about(value: float) -> str:
    """An estimate: 50,790.4 is 50,800; two digits below 10."""
    return f"{value:.2g}" if value < 10 else f"{_rounded(value):,.0f}"


def _rounded(value: float) -> float:
    """From 10,000 on to three digits that count."""
    return value if value < 10_000 else float(f"{value:.3g}")


def minutes(duration_s: float) -> str:
    """A duration; half minutes count below an hour."""
    if 120 <= duration_s < 3600:
        return f"{duration_s / 60:.3g} min"
    return format_duration(duration_s)


def seconds(duration_s: float) -> str:
    """A write time: whole seconds up to ten minutes, so that it can be divided by hand."""
    return f"{duration_s:.0f} s" if 10 <= duration_s < 600 else format_duration(duration_s)


def days(duration_s: float) -> str:
    """A long duration: from ten days on whole days."""
    return f"{duration_s / 86400:,.0f} d" if duration_s >= 864_000 else format_duration(duration_s)


def percent(share: float) -> str:
    """A share of the run."""
    if 0 < share < 0.0005:
        return "less than 0.1 %"
    return f"{share * 100:.1f} %"


def gpu_hours(amount: float, run: Run) -> str:
    """GPU-hours, with what they cost where the plan has a price."""
    count = about(amount)
    said = f"{count} GPU-hour{'' if count == '1' else 's'}"
    if not run.price_per_gpu_hour:
        return said
    return f"{said} ({format_money(_rounded(amount * run.price_per_gpu_hour))})"


def gpus(count: int) -> str:
    """`1 GPU`, `1,024 GPUs`."""
    return f"{count:,} GPU{'' if count == 1 else 's'}"


def tb(num_bytes: float) -> str:
    """Stored bytes in TB, the unit of prices: 352.8 TB is 353 TB."""
    value = num_bytes / 1e12
    return f"{value:,.0f} TB" if value >= 10 else f"{value:.2g} TB"


def listed(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
