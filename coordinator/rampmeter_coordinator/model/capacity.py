"""How much of a pool may be granted in sum, learned from what storage does to its writers. Never above the ceiling.

Storage is slow when writers spend their time in write and sync and still get much less than they could use. Then the
cap falls to little more than what they achieve. It rises in steps that double with the time in which they get what is
due, and drifts up while nothing can be learned: it is never stuck. One slow writer is no slow storage: its own maximum
is lowered and the rest is for others. Decides nothing about who writes; must never take a hung, CPU-bound or half
reported writer for slow storage.
"""

import math
from collections.abc import Mapping
from typing import Any

from rampmeter_coordinator.model.flow import Flows
from rampmeter_coordinator.model.habits import Habits
from rampmeter_coordinator.model.report import Report

__all__ = ["Capacity", "Report"]

FLOOR_SHARE = 0.01
"""The cap never falls below this share of the ceiling."""

LARGEST_FALL = 0.25
"""One finding lowers the cap to a quarter at most: a wrong one must not stop the pool."""

ABOVE_ACHIEVED = 1.02
"""The cap after a fall, in units of what was achieved: the writers keep storage busy."""

HOLD_S = 15.0
"""After a slow report nothing is raised for this long; a probing step doubles after as long without one."""

ASK_AGAIN_S = 6.0
"""Where one writer is slow all others are asked to report at once, at most this often."""

SETTLING_S = 3.0
"""For so long after a fall everybody is asked again soon: the reports that made it were of a time before, too."""

TICK_S = 5.0
HELD_TICKS = int(HOLD_S / TICK_S) - 1
"""They pass in the hold: the first probe ends 15 s without a slow report, as any later one does."""

FIRST_STEP = 0.02
LARGEST_STEP = 0.25

FULL_SHARE = 0.95
"""The cap is tested, and probed, where this share of it is in use."""

DRIFT_PER_TICK = 2.0 ** (TICK_S / 300.0)
"""Where nothing is learned the cap doubles in five minutes: old trouble is forgotten."""

ABOVE_UNTESTED = 1.18
"""While somebody writes, untested cap ends this far above what they get: room for one more to start and to show."""


class Capacity:
    """The learned cap of one pool, in bytes/s. Owned by the pool's state; changed through its methods only."""

    __slots__ = (
        "_asked_s",
        "_before_bytes_per_s",
        "_fell_s",
        "_flows",
        "_habits",
        "_num_quiet",
        "_silent_bytes_per_s",
        "_tick_s",
        "cap_bytes_per_s",
        "ceiling_bytes_per_s",
    )

    def __init__(self, ceiling_bytes_per_s: int) -> None:
        """Starts at the ceiling: what the operator lets be granted in sum (u x the configured capacity)."""
        self.ceiling_bytes_per_s = ceiling_bytes_per_s
        self.cap_bytes_per_s = ceiling_bytes_per_s
        self._habits = Habits(ceiling_bytes_per_s)
        self._flows = Flows(self._habits)
        self._before_bytes_per_s = ceiling_bytes_per_s
        self._asked_s = self._fell_s = -math.inf
        self._tick_s: float | None = None
        self._num_quiet = 0
        self._silent_bytes_per_s = 0

    # -- what writers say --------------------------------------------------------------------------------------

    def reported(self, uid: str, report: Report, now_s: float, silent_bytes_per_s: int | None = None) -> bool:
        """Take in what a writer did between two of its renewals, or up to its release; may lower the cap at once.

        silent   as in `passed`; None = as it was told last
        Says whether the others should report now: this one is slow, and what they said is of a time before.
        """
        if silent_bytes_per_s is not None:
            self._silent_bytes_per_s = silent_bytes_per_s
        self._flows.is_lowered = self.cap_bytes_per_s < self.ceiling_bytes_per_s
        has_sample = self._flows.add(uid, report, now_s)
        if self._flows.takes_back(uid, report):
            self.cap_bytes_per_s = max(self.cap_bytes_per_s, self._before_bytes_per_s)
        if not has_sample:
            return False
        if self._flows.show_slow_storage(uid, now_s):
            self._flows.found_slow(uid, now_s)
            self._before_bytes_per_s = self.cap_bytes_per_s
            self._fall(now_s)
            return True
        if self._flows.refine(uid, now_s):
            self._fall(now_s)
            return False
        if not self._flows.is_suspicious(uid) or now_s < self._asked_s + ASK_AGAIN_S:
            return False
        self._asked_s = now_s
        return True

    def is_settling(self, now_s: float) -> bool:
        """Storage was found slow a moment ago: how slow it is, the next reports tell."""
        return now_s < self._fell_s + SETTLING_S

    def granted(self, uid: str, bytes_per_s: int, now_s: float) -> None:
        """The writer is told a new rate: it counts where others show that storage is slow before it reports of it."""
        self._flows.granted(uid, bytes_per_s, now_s)

    def left(self, uid: str) -> None:
        """The writer's lease has ended. What it got last still explains the reports of the others for a while."""
        self._flows.left(uid)

    def slow_maximum(self, uid: str) -> int | None:
        """The most that this writer may be given, by what it has shown to be able to use; None = what it wants."""
        maximum = self._habits.maximum(uid)
        return None if maximum is None or maximum >= self.ceiling_bytes_per_s else maximum

    # -- time --------------------------------------------------------------------------------------------------

    def passed(self, now_s: float, used_bytes_per_s: int, silent_bytes_per_s: int = 0) -> None:
        """Time goes on: raise the cap if its time has come.

        used     what is granted and counted in sum
        silent   what of it is counted for those who do not report (safe rates, old leases): never seen as achieved
        """
        self._silent_bytes_per_s = silent_bytes_per_s
        if self.cap_bytes_per_s >= self.ceiling_bytes_per_s:
            self._tick_s = None
        elif self._tick_s is None:
            self._tick_s = now_s + HOLD_S
        elif now_s >= self._tick_s:
            num_ticks = 1 + int((now_s - self._tick_s) / TICK_S)
            self._tick_s += num_ticks * TICK_S
            self._rise(num_ticks, used_bytes_per_s, now_s)

    def wake_at_s(self) -> float | None:
        """When `passed` has something to do; None at the ceiling."""
        return None if self.cap_bytes_per_s >= self.ceiling_bytes_per_s else self._tick_s

    def _fall(self, now_s: float) -> None:
        achieved = self._silent_bytes_per_s + ABOVE_ACHIEVED * self._flows.witnessed_bytes_per_s
        lowest = max(self._floor, int(LARGEST_FALL * self._before_bytes_per_s))
        self.cap_bytes_per_s = min(self._before_bytes_per_s, max(lowest, int(achieved)))
        self._tick_s, self._num_quiet, self._fell_s = now_s + HOLD_S, HELD_TICKS, now_s

    def _rise(self, num_ticks: int, used_bytes_per_s: int, now_s: float) -> None:
        shows_room = self._flows.show_room(now_s)
        self._num_quiet += shows_room
        if shows_room and used_bytes_per_s >= FULL_SHARE * self.cap_bytes_per_s:
            wanted = self.cap_bytes_per_s * (1.0 + self._step)
        elif self._flows.stand_still(now_s):
            wanted = 0.0
        else:
            most = self._most_untested(used_bytes_per_s if shows_room else 0, now_s)
            wanted = min(most, self.cap_bytes_per_s * DRIFT_PER_TICK**num_ticks)
        raised = max(self.cap_bytes_per_s, math.ceil(wanted))
        self.cap_bytes_per_s = min(self.ceiling_bytes_per_s, raised)
        if self.cap_bytes_per_s == self.ceiling_bytes_per_s:
            self._tick_s = None

    def _most_untested(self, used_bytes_per_s: int, now_s: float) -> float:
        """How far the cap may drift: above what writers get, and above what they were granted where they get that.

        What they get is less than their grants by their lead-ins. One whose grant leaves too little of the cap for
        another to start would hold it down for ever.
        """
        achieved = self._flows.achieved(now_s)
        if not achieved:
            return math.inf
        return max(self._silent_bytes_per_s + ABOVE_UNTESTED * achieved, ABOVE_UNTESTED * used_bytes_per_s)

    @property
    def _step(self) -> float:
        """Of this probe. It doubles with each 15 s in which writers got what they were due, used or not.

        After the hold, time in which nobody wrote earns nothing.
        """
        doublings = int(self._num_quiet * TICK_S / HOLD_S)
        return min(LARGEST_STEP, FIRST_STEP * 2.0**doublings)

    @property
    def _floor(self) -> int:
        return max(1, int(FLOOR_SHARE * self.ceiling_bytes_per_s))

    # -- memory ------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, int]:
        """What a restart must not forget: a cap that was learned. Samples are seconds old at most and come again."""
        learned = self.cap_bytes_per_s < self.ceiling_bytes_per_s
        return {"cap_bytes_per_s": self.cap_bytes_per_s} if learned else {}

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any], ceiling_bytes_per_s: int) -> "Capacity":
        """The cap as `to_dict` kept it, under the ceiling of today."""
        capacity = cls(ceiling_bytes_per_s)
        cap = int(kept.get("cap_bytes_per_s", ceiling_bytes_per_s))
        capacity.cap_bytes_per_s = min(ceiling_bytes_per_s, max(capacity._floor, cap))
        return capacity
