"""Medians with their bootstrap intervals, seeded."""

import random
from collections.abc import Sequence
from statistics import median

_NUM_RESAMPLES = 2000


def interval_of_median(values: Sequence[float], *, seed: int = 1) -> tuple[float, float]:
    """The bootstrap 95 % interval of the median."""
    rng = random.Random(seed)
    medians = sorted(median(rng.choices(values, k=len(values))) for _ in range(_NUM_RESAMPLES))
    return medians[int(0.025 * _NUM_RESAMPLES)], medians[int(0.975 * _NUM_RESAMPLES)]
