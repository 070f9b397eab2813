"""What the writers of a pool got from storage lately, and what that says: storage is slow, has room, or nothing.

Only who is blocked for nearly all of its time tells of storage. A hung or CPU-bound writer, a pause, a lead-in or a
tail is no sample. What a writer got is compared with what it could use, not with what it was given. Decides no cap.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rampmeter_coordinator.model.habits import Habits, is_unfilled
from rampmeter_coordinator.model.report import Report
from rampmeter_coordinator.model.sample import Sample, rate_one_after_another

FRESH_S = 12.0
"""Samples are two renewals old at most."""

DEPARTED_S = 6.0
"""Who left took its part of storage while the others did what they report now: it counts for one renewal more."""

ROUND_S = 6.0
"""Within this everybody has reported once."""

SHORTEST_SAMPLE_S = 1.0
"""Reports come early where rates change; shorter ones are put together."""

SHORTEST_WITNESS_S = 2.0
"""Less writing than this is not believed when it says that storage is slow."""

NEGLIGIBLE_S = 0.1
"""An answer was on its way: the grant of such a moment does not count."""

NUM_SEVERAL = 3
"""So many writers say something about storage that one alone does not, even if nothing is known of any of them."""


@dataclass(slots=True, kw_only=True)
class Flow:
    """One writer, since its report at `at_s`.

    grants        the two newest of its grants and since when it has them, the newest first
    short         gathers reports too short to judge, of the time from `short_begun_s` on
    stood_still   it wrote nothing in its last report: it hangs, or is before its first or behind its last byte
    """

    at_s: float
    granted_bytes_per_s: int = 0
    grants: tuple[tuple[float, int], ...] = ()
    sample: Sample | None = None
    short: Report | None = None
    short_begun_s: float = 0.0
    stood_still: bool = False
    departed: bool = False

    def granted_at(self, at_s: float) -> int:
        """Its grant at that time; what it reported last if none has been given since."""
        return next(
            (granted for since_s, granted in self.grants if since_s <= at_s), self.granted_bytes_per_s
        )

    def ends_s(self) -> float:
        """From when on it says nothing any more."""
        return self.at_s + (DEPARTED_S if self.departed else FRESH_S)


class Flows:
    """The writers of one pool and their newest samples."""

    __slots__ = ("_ends_next_s", "_finder", "_flows", "_found_slow_s", "_habits", "_witnesses", "is_lowered")

    def __init__(self, habits: Habits) -> None:
        """`habits` are learned from every sample."""
        self._habits = habits
        self._flows: dict[str, Flow] = {}
        self._ends_next_s = math.inf
        """No flow ends before this: reports only move their ends later."""
        self._finder: str | None = None
        self._found_slow_s = -math.inf
        self._witnesses: dict[str, tuple[int, float]] = {}
        self.is_lowered = False
        """The cap is below its ceiling."""

    # -- facts -------------------------------------------------------------------------------------------------

    def granted(self, uid: str, bytes_per_s: int, now_s: float) -> None:
        """The writer is given this from now on; it will report of it later."""
        flow = self._flows.get(uid)
        if flow is None or flow.departed:
            if bytes_per_s == 0:
                return
            flow = self._new(uid, now_s, now_s)
        flow.grants = ((now_s, bytes_per_s), *flow.grants[:1])

    def add(self, uid: str, report: Report, now_s: float) -> bool:
        """Take a report in. Is there a new sample? It takes a grant, bytes, and a second of time."""
        flow = self._flows.get(uid)
        if flow is None or flow.departed:
            flow = self._new(uid, now_s - report.total_s, now_s)
        begun_s, flow.at_s, flow.granted_bytes_per_s = flow.at_s, now_s, report.bytes_per_s
        if report.bytes_per_s == 0:
            flow.sample = flow.short = None
            return False
        if report.total_s >= NEGLIGIBLE_S:
            if flow.short is not None:
                report, begun_s = report.plus(flow.short), flow.short_begun_s
            flow.short, flow.short_begun_s = report, begun_s
            if report.total_s >= SHORTEST_SAMPLE_S:
                flow.short = None
                return self._judge(uid, flow, report, begun_s)
        if now_s - begun_s > 2.0 * SHORTEST_SAMPLE_S:
            flow.sample, flow.short, flow.stood_still = None, None, True
        return False

    def _judge(self, uid: str, flow: Flow, report: Report, begun_s: float) -> bool:
        """0 bytes are no sample, and neither is the report after them: it is half a stall."""
        if report.num_bytes == 0 or flow.stood_still:
            flow.sample = None
        else:
            before = flow.sample
            flow.sample = Sample(
                report=report,
                begun_s=begun_s,
                ended_s=flow.at_s,
                due_bytes_per_s=self._habits.due(uid, report.bytes_per_s),
                could_use_bytes_per_s=self._habits.could_use(uid, report.bytes_per_s),
                is_stranger=self._habits.is_stranger(uid),
            )
            self._learn(uid, flow.sample, before)
        flow.stood_still = report.num_bytes == 0
        return flow.sample is not None

    def _learn(self, uid: str, sample: Sample, before: Sample | None) -> None:
        """The writer's habit."""
        report, achieved = sample.report, sample.report.achieved_bytes_per_s
        if report.is_held_back:
            self._habits.filled(uid, report)
        elif is_unfilled(report) and self._is_its_own_limit(sample, before):
            self._habits.limit(uid, achieved)
        elif not sample.is_slow:
            self._habits.got(uid, achieved)

    def _is_its_own_limit(self, sample: Sample, before: Sample | None) -> bool:
        """A known writer that is blocked and gets less is limited by itself only if it is so again, and others are not.

        Until then it may be storage that has become slow, and what is handed on would make it slower. In a pool that
        was found slow it is storage if most of several get less: were they limited one by one, all would sink
        together, and nobody would be left to show it.
        """
        if not sample.report.is_blocked or sample.is_stranger:
            return True
        if before is None or not is_unfilled(before.report):
            return False
        telling = self._telling(sample.ended_s) if self.is_lowered else []
        return len(telling) < NUM_SEVERAL or not self._most(telling, lambda told: told.is_unfilled)

    def left(self, uid: str) -> None:
        """The writer's lease has ended."""
        flow = self._flows.get(uid)
        if flow is not None:
            flow.departed = True
            self._ends_next_s = min(self._ends_next_s, flow.ends_s())

    # -- slow storage ------------------------------------------------------------------------------------------

    def show_slow_storage(self, uid: str, now_s: float) -> bool:
        """Does the newest report, this writer's, together with those of the others say that storage is slow?

        It is where the weighted median writer is. Of a stranger nobody knows whether it could ever do better.
        """
        if not self.is_suspicious(uid):
            return False
        samples = self._telling(now_s)
        if all(sample.is_stranger for sample in samples) and len(samples) < NUM_SEVERAL:
            return False
        return self._most(samples, lambda sample: sample.is_slow)

    def is_suspicious(self, uid: str) -> bool:
        """Does the newest report, this writer's, say that storage is slow for it, since the last finding?"""
        own = self._flows[uid].sample
        return (
            own is not None
            and own.is_slow
            and own.middle_s >= self._found_slow_s
            and own.report.total_s >= SHORTEST_WITNESS_S
        )

    def found_slow(self, uid: str, now_s: float) -> None:
        """Keep what everybody gets while the grants are what they are: (grant, rate) by writer.

        Who has not reported since storage is slow gets as much of its grant as this writer, the newest witness.
        """
        own = self._flows[uid].sample
        assert own is not None
        self._finder, self._found_slow_s = uid, now_s
        self._witnesses = {
            name: self._witness(flow, own)
            for name, flow in self._fresh(now_s).items()
            if not flow.stood_still
        }
        self._witnesses[uid] = (own.report.bytes_per_s, own.report.achieved_bytes_per_s)

    @staticmethod
    def _witness(flow: Flow, own: Sample) -> tuple[int, float]:
        """A writer's grant while `own` was written, and what it got: as it says itself, if it speaks of that time."""
        sample, granted = flow.sample, flow.granted_at(own.middle_s)
        rate = granted * own.report.achieved_bytes_per_s / own.report.bytes_per_s
        if sample is not None and (sample.middle_s >= own.begun_s or not sample.report.tells_of_storage):
            rate = min(granted, sample.rate_bytes_per_s)
        return granted, rate * own.share_before(flow.at_s) if flow.departed else rate

    def refine(self, uid: str, now_s: float) -> bool:
        """The newest report, this writer's, speaks mostly of those grants: it takes the place of the older one.

        What it got of a smaller grant is the least that it would have got of the larger one.
        """
        sample = self._flows[uid].sample
        if sample is None or now_s > self._found_slow_s + ROUND_S or sample.middle_s >= self._found_slow_s:
            return False
        granted, believed = self._witnesses.get(uid, (0, 0.0))
        if sample.report.bytes_per_s < granted and sample.rate_bytes_per_s <= believed:
            return False
        self._witnesses[uid] = (sample.report.bytes_per_s, sample.rate_bytes_per_s)
        return True

    def takes_back(self, uid: str, report: Report) -> bool:
        """Is this the writer that found storage slow, and has not written a byte since?

        Then what it reported was the beginning of a stall, or it hangs: either tells nothing of how fast storage is.
        """
        if uid != self._finder or report.bytes_per_s == 0 or report.total_s < SHORTEST_SAMPLE_S:
            return False
        self._finder = None
        return report.num_bytes == 0

    @property
    def witnessed_bytes_per_s(self) -> float:
        """What all writers got in sum when storage was found slow."""
        return sum(rate for _, rate in self._witnesses.values())

    # -- room --------------------------------------------------------------------------------------------------

    def show_room(self, now_s: float) -> bool:
        """Somebody writes, and the weighted median writer gets what is due: storage may have more.

        Those who are limited by themselves would get no more from any storage.
        """
        if not self._speaking(now_s):
            return False
        samples = [sample for sample in self._telling(now_s) if not sample.is_limited]
        return not self._most(samples, lambda sample: sample.is_tight)

    def stand_still(self, now_s: float) -> bool:
        """There are writers and none has moved a byte: nothing is known about storage."""
        flows = self._fresh(now_s).values()
        present = any(flow.granted_bytes_per_s > 0 and not flow.departed for flow in flows)
        return present and not any(flow.sample for flow in flows)

    def achieved(self, now_s: float) -> float:
        """What those who speak get in sum, in bytes/s; 0 = nobody does."""
        flows = self._speaking(now_s)
        samples = [flow.sample for flow in flows if flow.sample is not None]
        if any(flow.departed for flow in flows):
            return rate_one_after_another(samples)
        return sum(sample.rate_bytes_per_s for sample in samples)

    def _most(self, samples: Iterable[Sample], is_it: Callable[[Sample], bool]) -> bool:
        """Is it so of the weighted median writer? The weight is what a writer could use.

        Samples from before the last finding speak of grants that are no more: they have a weight, and it is not so.
        """
        sum_so = sum_all = 0.0
        for sample in samples:
            sum_all += sample.could_use_bytes_per_s
            if sample.middle_s >= self._found_slow_s and is_it(sample):
                sum_so += sample.could_use_bytes_per_s
        return 2.0 * sum_so > sum_all

    def _telling(self, now_s: float) -> list[Sample]:
        """Samples that tell of storage: not of who computes, not of strangers if others do."""
        samples = [flow.sample for flow in self._speaking(now_s) if flow.sample is not None]
        telling = [sample for sample in samples if sample.report.tells_of_storage]
        return [sample for sample in telling if not sample.is_stranger] or telling

    def _speaking(self, now_s: float) -> list[Flow]:
        """Who writes and has reported or, where nobody has, who left last: short saves report at their end only."""
        flows = [flow for flow in self._fresh(now_s).values() if flow.sample is not None]
        return [flow for flow in flows if not flow.departed] or flows

    def _fresh(self, now_s: float) -> dict[str, Flow]:
        """The flows of now; older ones are dropped."""
        if now_s > self._ends_next_s:
            self._flows = {uid: flow for uid, flow in self._flows.items() if now_s <= flow.ends_s()}
            self._ends_next_s = min((flow.ends_s() for flow in self._flows.values()), default=math.inf)
        return self._flows

    def _new(self, uid: str, at_s: float, now_s: float) -> Flow:
        """A flow that begins at `at_s`, among those of now."""
        flow = self._fresh(now_s)[uid] = Flow(at_s=at_s)
        self._ends_next_s = min(self._ends_next_s, flow.ends_s())
        return flow
