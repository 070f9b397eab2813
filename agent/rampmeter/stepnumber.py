"""What number of a step training has told: an int, or what counts like one. What is none is told of once, and no error.

A tensor or a NumPy integer counts; a text, a fraction, a negative number and one beyond every count do not.
"""

import logging
import operator
from typing import Any

from rampmeter.core.fields import MAX_COUNT

_log = logging.getLogger("rampmeter")


class StepNumbers:
    """One per attempt; for the training thread."""

    def __init__(self) -> None:
        self._has_told = False

    def of(self, step: Any) -> int | None:
        """The number; None if it is none, and then nothing can be saved in this call."""
        number = step if type(step) is int else _counted(step)
        if number is not None and 0 <= number <= MAX_COUNT:
            return number
        if not self._has_told:
            self._has_told = True
            _log.error(
                "step() was called with %.100r, which is no number of a step: nothing is saved in such a call; "
                "say a whole number from 0 to %d",
                step,
                MAX_COUNT,
            )
        return None


def _counted(step: Any) -> int | None:
    try:
        if isinstance(step, float):
            return int(step) if step.is_integer() else None
        return operator.index(step)
    except Exception:  # whatever an object of the caller's does
        return None
