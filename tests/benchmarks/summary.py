"""How a measured promise is written down: the median of its runs, a bootstrap 95 % interval, the load beside it."""

import os
import random
import statistics
from collections.abc import Sequence
from typing import Any

Result = dict[str, Any]

_NUM_RESAMPLES = 2000


def summary(values: Sequence[float], unit: str = "ratio", **more: Any) -> Result:
    """NAME's entry in build/bench.json."""
    draw = random.Random(0)
    sample = values if len(values) <= _NUM_RESAMPLES else draw.sample(values, _NUM_RESAMPLES)
    medians = sorted(statistics.median(draw.choices(sample, k=len(sample))) for _ in range(_NUM_RESAMPLES))
    return {
        "value": round(statistics.median(values), 4),
        "unit": unit,
        "runs": len(values),
        "low": round(medians[int(0.025 * _NUM_RESAMPLES)], 4),
        "high": round(medians[int(0.975 * _NUM_RESAMPLES) - 1], 4),
        "load": round(os.getloadavg()[0], 2),
        **more,
    }
