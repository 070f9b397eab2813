"""Where in its interval a job starts, so that jobs that started together do not write together.

Pure: randomness is a seeded `random.Random` from the caller. Draws only at registration; a changed interval scales
what remains instead of drawing again, so jobs never re-align.
"""

import math
import random
from collections.abc import Sequence

FIRST_SAVE_WITHIN_S = 600.0
"""The first save of an attempt is a dry run of the whole path and comes at most this late."""

READ_UNASKED_WITHIN_S = 30.0
"""GPUs idle meanwhile: longer costs more than a read that is slow because others read, too."""


def first_save_in(interval_s: float, rng: random.Random) -> float:
    """Seconds from the start of an attempt to its first save: uniform in [0, min(T, 600 s))."""
    return rng.random() * min(interval_s, FIRST_SAVE_WITHIN_S)


def read_unasked_in(rng: random.Random) -> float:
    """Seconds of silence after which a restore begins without a lease: uniform in [0, 30 s)."""
    return rng.random() * READ_UNASKED_WITHIN_S


def draw_offset(interval_s: float, others: Sequence[float], rng: random.Random) -> float:
    """A phase offset in [0, T): the better of two uniform draws, judged by its distance to the nearest other.

    `others` are the times, in seconds from now, at which other jobs of the pool are due.
    """
    first, second = rng.random() * interval_s, rng.random() * interval_s
    return max(first, second, key=lambda offset: _room(offset, others, interval_s))


def due_after_registration(
    registered_s: float, offset_s: float, interval_s: float, not_before_s: float
) -> float:
    """The first time >= not_before_s that is registered_s + offset_s modulo T, in seconds of the same clock."""
    start = registered_s + offset_s % interval_s
    missed = max(0.0, not_before_s - start)
    return start + math.ceil(missed / interval_s) * interval_s


def rescaled(due_s: float, now_s: float, old_interval_s: float, new_interval_s: float) -> float:
    """The due time after T changed: what remains is scaled, next = now + remaining * T_new / T_old."""
    return now_s + max(0.0, due_s - now_s) * new_interval_s / old_interval_s


def _room(offset: float, others: Sequence[float], interval_s: float) -> float:
    gaps = (abs(offset - other % interval_s) for other in others)
    return min((min(gap, interval_s - gap) for gap in gaps), default=interval_s)
