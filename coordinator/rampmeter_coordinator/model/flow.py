"""What the writers of a pool got from storage lately, and what that says: storage is slow, has room, or nothing.

Only who is blocked for nearly all of its time tells of storage. A hung or CPU-bound writer, a pause, a lead-in or a
tail is no sample. What a writer got is compared with what it could use, not with what it was given. Decides no cap.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from rampmeter_coordinator.model.maxima import HEADROOM, Maxima
from rampmeter_coordinator.model.report import Report

FRESH_S = 12.0
"""Samples are two renewals old at most."""

DEPARTED_S = 6.0
"""Who left took its part of storage while the others did what they report now: it counts for one renewal more."""

ROUND_S = 6.0
"""Within this everybody has reported once."""

SHORTEST_SAMPLE_S = 1.0
"""Reports come early where rates change; shorter ones are put together."""

SLOW_SHARE = 0.88
"""A blocked writer that gets less than this of what it could use."""

TIGHT_SHARE = 0.97
"""A blocked writer that gets a little less than it could use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One writer's report of the time from `begun_s` on; `could_use` is its grant, or what it once achieved."""

    report: Report
    begun_s: float
    could_use_bytes_per_s: float

    @property
    def got(self) -> float:
        """What it got of what it could use."""
        return self.report.filled * self.report.bytes_per_s / self.could_use_bytes_per_s

    @property
    def weight_bytes_per_s(self) -> float:
        """What it is granted, but no more than it has a use for: a slow newcomer must not outvote the others."""
        return min(self.report.bytes_per_s, HEADROOM * self.report.achieved_bytes_per_s)


@dataclass(slots=True, kw_only=True)
class Flow:
    """One writer, since its report at `at_s`.

    short         gathers reports too short to judge, of the time from `short_begun_s` on
    stood_still   it wrote nothing in its last report: it hangs, or is before its first or behind its last byte
    """

    at_s: float
    granted_bytes_per_s: int = 0
    sample: Sample | None = None
    short: Report | None = None
    short_begun_s: float = 0.0
    stood_still: bool = False
    departed: bool = False

    def ends_s(self) -> float:
        """From when on it says nothing any more."""
        return self.at_s + (DEPARTED_S if self.departed else FRESH_S)


class Flows:
    """The writers of one pool and their newest samples."""

    __slots__ = ("_flows", "_found_slow_s", "_maxima", "_witnesses")

    def __init__(self, maxima: Maxima) -> None:
        """`maxima` learns from every sample."""
        self._maxima = maxima
        self._flows: dict[str, Flow] = {}
        self._found_slow_s = -math.inf
        self._witnesses: dict[str, tuple[int, float]] = {}

    # -- facts -------------------------------------------------------------------------------------------------

    def add(self, uid: str, report: Report, now_s: float) -> None:
        """Take a report in. It is a sample if it had a grant, bytes, and a second of time."""
        flow = self._flows.get(uid)
        if flow is None or flow.departed:
            flow = self._flows[uid] = Flow(at_s=now_s)
        begun_s, flow.at_s, flow.granted_bytes_per_s = flow.at_s, now_s, report.bytes_per_s
        if report.bytes_per_s == 0:
            flow.sample = flow.short = None
            return
        if flow.short is not None:
            report, begun_s = report.plus(flow.short), flow.short_begun_s
            flow.short = None
        if report.total_s >= SHORTEST_SAMPLE_S:
            self._judge(uid, flow, report, begun_s)
        elif now_s - begun_s > 2.0 * SHORTEST_SAMPLE_S:
            flow.sample, flow.stood_still = None, True
        else:
            flow.short, flow.short_begun_s = report, begun_s

    def _judge(self, uid: str, flow: Flow, report: Report, begun_s: float) -> None:
        """0 bytes are no sample, and neither is the report after them: it is half a stall."""
        if report.num_bytes == 0 or flow.stood_still:
            flow.sample = None
        else:
            limited = self._maxima.limits(uid, report.bytes_per_s)
            could_use = report.bytes_per_s / (HEADROOM if limited else 1.0)
            flow.sample = Sample(report=report, begun_s=begun_s, could_use_bytes_per_s=could_use)
            self._maxima.learn(uid, report)
        flow.stood_still = report.num_bytes == 0

    def left(self, uid: str) -> None:
        """The writer's lease has ended."""
        if uid in self._flows:
            self._flows[uid].departed = True

    # -- slow storage ------------------------------------------------------------------------------------------

    def show_slow_storage(self, uid: str, now_s: float) -> bool:
        """Does the newest report, this writer's, together with those of the others say that storage is slow?

        It is where the weighted median writer is slow, or is tight and all together are slow: a newcomer takes from
        those who had just enough. Samples from before the last such finding speak of grants that are no more.
        """
        own = self._flows[uid].sample
        if own is None or own.begun_s < self._found_slow_s or not _is_below(own, TIGHT_SHARE):
            return False
        samples = self._telling(now_s)
        if _most_are_below(samples, SLOW_SHARE):
            return True
        could_use = sum(sample.could_use_bytes_per_s for sample in samples)
        got = sum(sample.got * sample.could_use_bytes_per_s for sample in samples)
        return _most_are_below(samples, TIGHT_SHARE) and got < SLOW_SHARE * could_use

    def found_slow(self, now_s: float) -> None:
        """Keep what everybody got while the grants were what they were: (grant, achieved) by writer.

        Who has not reported yet got as much of its grant as the others.
        """
        flows = {uid: flow for uid, flow in self._fresh(now_s).items() if not flow.stood_still}
        reports = [flow.sample.report for flow in flows.values() if flow.sample is not None]
        share = sum(r.achieved_bytes_per_s for r in reports) / sum(r.bytes_per_s for r in reports)
        self._found_slow_s, self._witnesses = now_s, {}
        for uid, flow in flows.items():
            if flow.sample is None:
                self._witnesses[uid] = (flow.granted_bytes_per_s, share * flow.granted_bytes_per_s)
            else:
                self._witnesses[uid] = _testimony(flow.sample)

    def refine(self, uid: str, now_s: float) -> bool:
        """The newest report, this writer's, still speaks of those grants: it takes the place of the older one."""
        flow = self._flows[uid]
        if uid not in self._witnesses or now_s > self._found_slow_s + ROUND_S or flow.sample is None:
            return False
        if flow.short is not None or flow.sample.begun_s >= self._found_slow_s:
            return False
        if flow.sample.report.bytes_per_s < self._witnesses[uid][0]:
            return False
        self._witnesses[uid] = _testimony(flow.sample)
        return True

    @property
    def witnessed_bytes_per_s(self) -> float:
        """What all writers got in sum when storage was found slow."""
        return sum(achieved for _, achieved in self._witnesses.values())

    # -- room --------------------------------------------------------------------------------------------------

    def show_room(self, now_s: float) -> bool:
        """The weighted median writer gets what it could use: storage may have more."""
        samples = self._telling(now_s)
        return bool(samples) and not _most_are_below(samples, TIGHT_SHARE)

    def stand_still(self, now_s: float) -> bool:
        """There are writers and none has moved a byte: nothing is known about storage."""
        flows = self._fresh(now_s).values()
        present = any(flow.granted_bytes_per_s > 0 and not flow.departed for flow in flows)
        return present and not any(flow.sample for flow in flows)

    def achieved(self, now_s: float) -> list[float]:
        """What each writer gets that reports, in bytes/s."""
        flows = [flow for flow in self._fresh(now_s).values() if not flow.departed]
        return [flow.sample.report.achieved_bytes_per_s for flow in flows if flow.sample is not None]

    def _telling(self, now_s: float) -> list[Sample]:
        """Samples that tell of storage: of grants of today, and not of who computes and has no use for more."""
        flows = [flow for flow in self._fresh(now_s).values() if not flow.departed]
        samples = [flow.sample for flow in flows if flow.sample is not None]
        recent = [sample for sample in samples if sample.begun_s >= self._found_slow_s]
        return [sample for sample in recent if sample.report.is_blocked or sample.report.is_held_back]

    def _fresh(self, now_s: float) -> dict[str, Flow]:
        """The flows of now; older ones are dropped."""
        if any(now_s > flow.ends_s() for flow in self._flows.values()):
            self._flows = {uid: flow for uid, flow in self._flows.items() if now_s <= flow.ends_s()}
        return self._flows


def _testimony(sample: Sample) -> tuple[int, float]:
    return (sample.report.bytes_per_s, sample.report.achieved_bytes_per_s)


def _is_below(sample: Sample, share: float) -> bool:
    return sample.report.is_blocked and sample.got < share


def _most_are_below(samples: Iterable[Sample], share: float) -> bool:
    """The weighted median writer is blocked and gets less than this share of what it could use."""
    sum_below = sum_all = 0.0
    for sample in samples:
        sum_all += sample.weight_bytes_per_s
        if _is_below(sample, share):
            sum_below += sample.weight_bytes_per_s
    return 2.0 * sum_below > sum_all
