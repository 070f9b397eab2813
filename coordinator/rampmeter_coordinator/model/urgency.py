"""Which urgent saves can still be written before their deadlines. Pure: figures in, a verdict out.

Earliest deadline first, on the room that really appears: what is free now, what others give back one round trip after
they are told, what only comes back when a lease expires. In a wave of notices not everybody may fit: then those go
without who have the least GPU time at risk, so that the others are whole.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

ROUND_TRIP_S = 1.0
"""A writer whose renewal is held is told at once; its next request confirms within this."""

COMMIT_S = 1.0
"""What the end of a save takes beside its bytes."""

_ROUNDING_BYTES = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescue:
    """One urgent save. `from_s` is when its first byte can be written; `granted` ones are not taken back."""

    uid: str
    num_bytes: float
    wanted_bytes_per_s: int
    from_s: float
    deadline_at_s: float
    at_risk_gpu_s: float
    granted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """From `at_s` on so much more bandwidth is there."""

    at_s: float
    bytes_per_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Who will not fit, and how many bytes of each would."""

    fits_bytes: dict[str, int]


def judge(rescues: Sequence[Rescue], rooms: Sequence[Room], now_s: float) -> Verdict:
    """Take in the most GPU time at risk first, each where all that were taken before it stay in time.

    So the least at risk goes without, and one that cannot be in time at all takes nobody with it; a granted one that is
    late anyway holds up nobody. What those that go without could write is what the others leave over.
    """
    granted = _by_deadline(rescue for rescue in rescues if rescue.granted)
    waiting = [rescue for rescue in rescues if not rescue.granted]
    late_anyway = _late(granted, rooms, now_s)
    if _late(_by_deadline(rescues), rooms, now_s) <= late_anyway:
        return Verdict(fits_bytes={})
    kept, dropped = granted, []
    for rescue in sorted(waiting, key=lambda one: (-one.at_risk_gpu_s, one.deadline_at_s, one.uid)):
        tried = _by_deadline([*kept, rescue])
        if _late(tried, rooms, now_s) <= late_anyway:
            kept = tried
        else:
            dropped.append(rescue)
    rest = written_in_time([*kept, *dropped], rooms, now_s)[len(kept) :]
    return Verdict(fits_bytes={rescue.uid: int(bytes_) for rescue, bytes_ in zip(dropped, rest, strict=True)})


def _by_deadline(rescues: Iterable[Rescue]) -> list[Rescue]:
    return sorted(rescues, key=lambda rescue: (rescue.deadline_at_s, rescue.uid))


def _late(rescues: Sequence[Rescue], rooms: Sequence[Room], now_s: float) -> set[str]:
    """Who is not written in time."""
    written = written_in_time(rescues, rooms, now_s)
    return {
        rescue.uid
        for rescue, bytes_ in zip(rescues, written, strict=True)
        if bytes_ < rescue.num_bytes - _ROUNDING_BYTES
    }


def written_in_time(rescues: Sequence[Rescue], rooms: Sequence[Room], now_s: float) -> list[float]:
    """Bytes that each will have written COMMIT_S before its deadline; the first of `rescues` has the first claim."""
    over_s = [rescue.deadline_at_s - COMMIT_S for rescue in rescues]
    left = [rescue.num_bytes for rescue in rescues]
    moments = sorted({*(room.at_s for room in rooms), *(rescue.from_s for rescue in rescues), *over_s})
    coming = [moment for moment in reversed(moments) if moment > now_s]
    todo, at_s, there = list(range(len(rescues))), now_s, _there(rooms, now_s)
    while todo := [i for i in todo if left[i] > 0.0 and at_s < over_s[i]]:
        rest, rates = there, {}
        for i in todo:
            if rest <= 0:
                break
            if rescues[i].from_s <= at_s and rescues[i].wanted_bytes_per_s:
                rates[i] = min(rescues[i].wanted_bytes_per_s, rest)
                rest -= rates[i]
        done_s = {i: at_s + left[i] / rate for i, rate in rates.items()}
        next_s = min([*done_s.values(), *coming[-1:]])  # of all that are to do the deadlines are to come
        for i, rate in rates.items():
            # who is done by then is set to 0: a last byte may take less than the clock can tell apart
            left[i] = 0.0 if done_s[i] <= next_s else left[i] - rate * (next_s - at_s)
        at_s = next_s
        if at_s == coming[-1]:
            coming.pop()
            there = _there(rooms, at_s)
    return [rescue.num_bytes - left[i] for i, rescue in enumerate(rescues)]


def _there(rooms: Sequence[Room], at_s: float) -> int:
    return sum(room.bytes_per_s for room in rooms if room.at_s <= at_s)
