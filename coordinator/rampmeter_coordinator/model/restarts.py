"""How long a job takes from an end to its first new step, R: down, load and warm-up, each smoothed over attempts. Pure.

R never moves an interval: it is shown, it tells an attempt that worked from one that only tried, and with M it says
what a failure costs however well a job saves.
"""

from rampmeter_coordinator.model.estimates import followed
from rampmeter_coordinator.model.history import History
from rampmeter_coordinator.model.records import Job

DEFAULT_RESTART_S = 600.0
"""Believed where nobody said and nothing was seen: a restart of a large job takes 4 to 14 minutes."""

LONGEST_DOWN_S = 3600.0
"""A job that was away for longer did not wait with its GPUs in hand: that teaches nothing and is not observed."""


def restart_s(job: Job) -> float:
    """R of this job: measured once all three parts are; until then what was believed, or the known parts if more."""
    history = job.history
    if history is None:
        return DEFAULT_RESTART_S
    parts = (history.down_s, history.load_s, history.warm_up_s)
    known_s = sum(part for part in parts if part is not None)
    if None not in parts:
        return known_s
    believed_s = history.believed_restart_s
    return max(known_s, DEFAULT_RESTART_S if believed_s is None else believed_s)


def was_down(history: History, down_s: float) -> None:
    """From the last contact of an attempt to the registration of the next."""
    history.down_s = _next(history.down_s, down_s)
    history.num_down += 1


def has_loaded(history: History, load_s: float) -> None:
    """How long a restore took."""
    history.load_s = _next(history.load_s, load_s)
    history.num_load += 1


def has_warmed_up(history: History, warm_up_s: float) -> None:
    """From the end of the restore, or the start, to the first step."""
    history.warm_up_s = _next(history.warm_up_s, warm_up_s)
    history.num_warm_up += 1


def _next(known_s: float | None, sample_s: float) -> float:
    return sample_s if known_s is None else followed(known_s, sample_s)
