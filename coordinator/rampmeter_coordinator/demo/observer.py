"""What happened in an act, computed from its history alone. Pure functions: no I/O, no clock.

An observer believes no process's own opinion of how it did: writers, bandwidth and rights come from time-stamped
records, and the check that rights never sum to more than the capacity is made over every instant between two changes.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rampmeter_coordinator.demo.history import (
    Allowed,
    Chunk,
    Committed,
    Ended,
    Failed,
    Killed,
    Loss,
    Record,
    Restored,
    Saving,
    Stalled,
    of_kind,
)

Life = tuple[str, int]

UNBOUNDED = 1e18
"""Stands for a right without a rate, in bytes per second: finite, so that sums come back to 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """`value` holds in [begin_s, end_s)."""

    begin_s: float
    end_s: float
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush:
    """One save on its way: `begin_s` and `end_s` are its first and last byte; durable_s None = it never was."""

    job: str
    life: int
    step: int
    snapshot_s: float
    begin_s: float
    end_s: float
    durable_s: float | None
    num_bytes: int

    @property
    def write_s(self) -> float | None:
        """From snapshot to durable."""
        return None if self.durable_s is None else self.durable_s - self.snapshot_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Shares of the jobs' time. rework is modelled: what a failure every M seconds would cost."""

    stall: float
    rework: float

    @property
    def total(self) -> float:
        return self.stall + self.rework


# -- step functions ----------------------------------------------------------------------------------------------------


def total_over_time(intervals: Iterable[Interval]) -> list[tuple[float, float]]:
    """The sum of all intervals that hold, as (time, value from then on)."""
    changes: dict[float, float] = {}
    for interval in intervals:
        if interval.end_s > interval.begin_s:
            changes[interval.begin_s] = changes.get(interval.begin_s, 0.0) + interval.value
            changes[interval.end_s] = changes.get(interval.end_s, 0.0) - interval.value
    times = sorted(changes)
    sums = itertools.accumulate(changes[time] for time in times)
    return list(zip(times, sums, strict=True))


def peak(steps: Sequence[tuple[float, float]]) -> float:
    """The largest value of a step function; 0 for none."""
    return max((value for _, value in steps), default=0.0)


# -- writers and bandwidth ---------------------------------------------------------------------------------------------


def flushes(records: list[Record]) -> list[Flush]:
    """All saves that wrote at least one byte. A process has one save in flight at a time."""
    found: list[Flush] = []
    saves = of_kind(records, Saving)
    for save in saves:
        later_s = min(
            (s.at_s for s in saves if _life(s) == _life(save) and s.at_s > save.at_s), default=math.inf
        )
        mine = [r for r in records if _life(r) == _life(save) and save.at_s <= r.at_s < later_s]
        chunks = of_kind(mine, Chunk)
        if not chunks:
            continue
        commit = next(iter(of_kind(mine, Committed)), None)
        found.append(
            Flush(
                job=save.job,
                life=save.life,
                step=save.step,
                snapshot_s=save.at_s if commit is None else commit.at_s - commit.write_s,
                begin_s=chunks[0].begin_s,
                end_s=chunks[-1].at_s,
                durable_s=None if commit is None else commit.at_s,
                num_bytes=sum(chunk.num_bytes for chunk in chunks),
            )
        )
    return found


def writers_over_time(saves: Iterable[Flush]) -> list[tuple[float, float]]:
    """How many saves were between their first and their last byte."""
    return total_over_time(Interval(begin_s=s.begin_s, end_s=s.end_s, value=1.0) for s in saves)


def bandwidth_over_time(chunks: Sequence[Chunk], begin_s: float, end_s: float, bin_s: float) -> list[float]:
    """Bytes per second that went into the storage, one value a bin; a chunk counts evenly over its interval."""
    totals = [0.0] * math.ceil((end_s - begin_s) / bin_s)
    for chunk in chunks:
        rate = chunk.num_bytes / max(chunk.at_s - chunk.begin_s, 1e-9)
        first = max(0, int((chunk.begin_s - begin_s) / bin_s))
        last = min(len(totals) - 1, int((chunk.at_s - begin_s) / bin_s))
        for index in range(first, last + 1):
            low_s, high_s = begin_s + index * bin_s, begin_s + (index + 1) * bin_s
            totals[index] += rate * max(0.0, min(chunk.at_s, high_s) - max(chunk.begin_s, low_s))
    return [total / bin_s for total in totals]


# -- rights ------------------------------------------------------------------------------------------------------------


def allowances(records: list[Record]) -> dict[Life, list[Interval]]:
    """What each life may write, when. A right ends with its time, with the save, with the process, or by a new one."""
    enders = (Allowed, Committed, Failed, Killed, Ended)
    result: dict[Life, list[Interval]] = {}
    for life in {_life(record) for record in of_kind(records, Allowed)}:
        mine = sorted(
            (r for r in records if _life(r) == life and isinstance(r, enders)), key=lambda record: record.at_s
        )
        ends_s = [record.at_s for record in mine[1:]] + [math.inf]
        result[life] = [
            Interval(
                begin_s=record.at_s,
                end_s=min(end_s, math.inf if record.until_s is None else record.until_s),
                value=UNBOUNDED if record.bytes_per_s is None else float(record.bytes_per_s),
            )
            for record, end_s in zip(mine, ends_s, strict=True)
            if isinstance(record, Allowed) and record.bytes_per_s != 0
        ]
    return result


def leases_broken(records: list[Record], at_s: float) -> int:
    """How many writers that held a rate at `at_s` lost it, or ran out of it, before their save was durable."""
    held = allowances(records)
    holders = [life for life in held if any(i.begin_s <= at_s < i.end_s for i in held[life])]
    return sum(not _kept_its_rate(records, held[life], life, at_s) for life in holders)


def _kept_its_rate(records: list[Record], held: list[Interval], life: Life, at_s: float) -> bool:
    later = [r for r in records if _life(r) == life and r.at_s > at_s]
    ends = [r for r in later if isinstance(r, Committed | Failed)]
    end = min(ends, key=lambda record: record.at_s, default=None)
    if end is None:  # still writing when the act was over, or killed itself
        return not any(r.bytes_per_s == 0 for r in of_kind(later, Allowed))
    covered_s = sum(max(0.0, min(i.end_s, end.at_s) - max(i.begin_s, at_s)) for i in held)
    return isinstance(end, Committed) and math.isclose(covered_s, end.at_s - at_s)


def allowed_over_time(records: list[Record]) -> list[tuple[float, float]]:
    """The sum of what all processes may write, at each instant: the over-grant check looks at its peak."""
    return total_over_time(itertools.chain.from_iterable(allowances(records).values()))


def offered_over_time(
    records: list[Record], capacity_bytes_per_s: int, *, metered: bool
) -> list[tuple[float, float]]:
    """Offered load as a share of capacity: the sum over writers of min(own maximal rate, granted rate).

    A writer's own maximal rate is the whole capacity here: alone, it would get all of it.
    """
    rights = allowances(records)
    unbounded = [Interval(begin_s=0.0, end_s=math.inf, value=UNBOUNDED)]
    return total_over_time(
        Interval(
            begin_s=max(save.begin_s, right.begin_s),
            end_s=min(save.end_s, right.end_s),
            value=min(1.0, right.value / capacity_bytes_per_s),
        )
        for save in flushes(records)
        for right in (rights.get((save.job, save.life), []) if metered else unbounded)
    )


# -- time --------------------------------------------------------------------------------------------------------------


def write_times(saves: Iterable[Flush]) -> list[float]:
    """Seconds from snapshot to durable of all committed saves, shortest first."""
    return sorted(save.write_s for save in saves if save.write_s is not None)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of the sorted values do not exceed, linearly interpolated; 0 for none."""
    if not values:
        return 0.0
    position = share * (len(values) - 1)
    low = math.floor(position)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (position - low)


def lost(records: list[Record], begin_s: float, end_s: float, mtbf_s: float) -> Lost:
    """Shares of time lost between `begin_s` and `end_s`, over the time in which jobs were training.

    A failure at a random instant throws away the work since the snapshot of the newest durable checkpoint. The mean of
    that age over time is T/2 + W in the long run; here it is measured, at each instant, and divided by M.
    """
    stall_s = age_s2 = life_s = 0.0
    for life, (start_s, stop_s) in _lives(records, begin_s, end_s).items():
        mine = [record for record in records if _life(record) == life]
        stall_s += sum(s.duration_s for s in of_kind(mine, Stalled) if start_s <= s.at_s <= stop_s)
        age_s2 += _age_integral(of_kind(mine, Committed), start_s, stop_s)
        life_s += stop_s - start_s
    if not life_s:
        return Lost(stall=0.0, rework=0.0)
    return Lost(stall=stall_s / life_s, rework=age_s2 / life_s / mtbf_s)


def _lives(records: list[Record], begin_s: float, end_s: float) -> dict[Life, tuple[float, float]]:
    """From when to when each life trained: its first record of a restore or loss, to its death or the end."""
    spans: dict[Life, tuple[float, float]] = {}
    for life in {_life(record) for record in of_kind(records, Loss)}:
        mine = [record for record in records if _life(record) == life]
        restored = of_kind(mine, Restored)
        start_s = max(begin_s, restored[0].at_s if restored else begin_s)
        deaths = [record.at_s for record in of_kind(mine, Killed)] + [end_s]
        spans[life] = (start_s, max(start_s, min(deaths)))
    return spans


def _age_integral(commits: Sequence[Committed], start_s: float, stop_s: float) -> float:
    """The age of the newest durable state, integrated over [start_s, stop_s]; at the start it is 0."""
    total, at_s, state_s = 0.0, start_s, start_s
    for commit in [c for c in commits if start_s <= c.at_s <= stop_s]:
        total += _area(state_s, at_s, commit.at_s)
        at_s, state_s = commit.at_s, commit.at_s - commit.write_s
    return total + _area(state_s, at_s, stop_s)


def _area(state_s: float, from_s: float, to_s: float) -> float:
    return ((to_s - state_s) ** 2 - (from_s - state_s) ** 2) / 2.0


def step_time(records: list[Record]) -> float:
    """Median seconds from one step's loss to the next of the same life, checkpoints included; 0 for none."""
    gaps_s: list[float] = []
    for life in {_life(record) for record in of_kind(records, Loss)}:
        times_s = [r.at_s for r in of_kind(records, Loss) if _life(r) == life]
        gaps_s += [after_s - before_s for before_s, after_s in itertools.pairwise(times_s)]
    return percentile(sorted(gaps_s), 0.5)


# -- the kill ----------------------------------------------------------------------------------------------------------


def steps_lost(records: list[Record]) -> int | None:
    """Steps that the killed job had trained and had to train again; None if it was not killed or did not resume."""
    kills = of_kind(records, Killed)
    if not kills:
        return None
    job, life = _life(kills[0])
    resumed = [r for r in of_kind(records, Restored) if _life(r) == (job, life + 1)]
    trained = [r.step for r in of_kind(records, Loss) if _life(r) == (job, life)]
    return max(trained, default=0) - resumed[0].step if resumed else None


def same_losses(reference: list[Record], other: list[Record], job: str) -> bool | None:
    """Whether every loss that `other` has of `job`, in all of its lives, is the reference's, bit for bit.

    Steps that only one of both has are not compared; None if there is nothing to compare after a restore.
    """
    expected = {r.step: r.loss for r in of_kind(reference, Loss) if r.job == job}
    compared = [r for r in of_kind(other, Loss) if r.job == job and r.step in expected]
    if not any(record.life > 1 for record in compared):
        return None
    return all(record.loss == expected[record.step] for record in compared)


def _life(record: Record) -> Life:
    return (record.job, record.life)
