"""Says of saves that fail one after another for the same reason once why, then ever more rarely how many, and the end.

A mount that has gone read-only fails every save for hours: a line for each would bury what else the job says. Decides
nothing about saves.
"""

import logging
from collections import Counter
from dataclasses import dataclass

from rampmeter.core.messages import FailReason
from rampmeter.failing import meaning

_log = logging.getLogger("rampmeter")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """One save that has failed; `said` is what its error says."""

    step: int
    reason: FailReason
    said: str


class Troubles:
    """Since the last save that was committed. One per attempt; for whatever thread ends a save."""

    def __init__(self) -> None:
        self._times: Counter[tuple[FailReason, str]] = Counter()

    def failed(self, failed: Failed) -> None:
        """Warn of the first of its kind, and of the second, fourth, eighth ... with their number."""
        what = meaning(failed.reason)
        kind = (failed.reason, "" if what else failed.said)  # the storage names another file each time
        self._times[kind] += 1
        times = self._times[kind]
        level = logging.DEBUG if times & (times - 1) else logging.WARNING
        count = "" if times == 1 else f", {times} times by now and told ever more rarely"
        text = "; ".join(filter(None, (failed.said, what)))
        _log.log(level, "step %d was not saved (%s%s): %s", failed.step, failed.reason, count, text)

    def committed(self, step: int) -> None:
        """Say, to whoever was told of a trouble, that it is over."""
        if not self._times:
            return
        by_reason: Counter[FailReason] = Counter()
        for (reason, _), times in self._times.items():
            by_reason[reason] += times
        lost = ", ".join(f"{times} x {reason}" for reason, times in by_reason.items())
        self._times.clear()
        _log.warning(
            "step %d is saved: the saves before it that failed (%s) are no trouble any more", step, lost
        )
