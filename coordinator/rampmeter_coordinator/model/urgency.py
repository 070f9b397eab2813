"""Which urgent saves can still be written before their deadlines. Pure: figures in, a verdict out.

Earliest deadline first, on the room that really appears: what is free now, what others give back one round trip after
they are told, what only comes back when a lease expires. In a wave of notices not everybody may fit: then those go
without who have the least GPU time at risk, so that the others are whole.
"""

import math
from collections.abc import Sequence
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
    """Drop the least GPU time at risk until everybody who is left is in time (Moore and Hodgson's rule, by value).

    What a dropped one could write is what those who are kept, and the dropped ones with more at risk, leave over.
    """
    kept = sorted(rescues, key=lambda rescue: (rescue.deadline_at_s, rescue.uid))
    dropped: list[Rescue] = []
    while (least := _least_worth(kept, written_in_time(kept, rooms, now_s))) is not None:
        kept.remove(least)
        dropped.append(least)
    dropped.sort(key=lambda rescue: (-rescue.at_risk_gpu_s, rescue.uid))
    written = written_in_time([*kept, *dropped], rooms, now_s)[len(kept) :]
    return Verdict(
        fits_bytes={rescue.uid: int(bytes_) for rescue, bytes_ in zip(dropped, written, strict=True)}
    )


def _least_worth(kept: Sequence[Rescue], written: Sequence[float]) -> Rescue | None:
    """Whom to drop for the first one that is late; None where nobody is late or nothing can be taken back."""
    for i, rescue in enumerate(kept):
        if written[i] < rescue.num_bytes - _ROUNDING_BYTES:
            candidates = [earlier for earlier in kept[: i + 1] if not earlier.granted]
            return min(candidates, key=lambda one: one.at_risk_gpu_s, default=None)
    return None


def written_in_time(rescues: Sequence[Rescue], rooms: Sequence[Room], now_s: float) -> list[float]:
    """Bytes that each will have written COMMIT_S before its deadline; the first of `rescues` has the first claim."""
    ends = [rescue.deadline_at_s - COMMIT_S for rescue in rescues]
    left = [rescue.num_bytes for rescue in rescues]
    moments = sorted({*(r.at_s for r in rooms), *(r.from_s for r in rescues), *ends})
    at_s = now_s
    while True:
        rest = float(sum(room.bytes_per_s for room in rooms if room.at_s <= at_s))
        rates = [0.0] * len(rescues)
        for i, rescue in enumerate(rescues):
            if rescue.from_s <= at_s < ends[i] and left[i] > 0.0:
                rates[i] = min(rescue.wanted_bytes_per_s, rest)
                rest -= rates[i]
        done_s = [at_s + left[i] / rate if rate else math.inf for i, rate in enumerate(rates)]
        next_s = min([*done_s, *(moment for moment in moments if moment > at_s)], default=math.inf)
        if next_s == math.inf:
            return [rescue.num_bytes - left[i] for i, rescue in enumerate(rescues)]
        for i, rate in enumerate(rates):
            # who is done by then is set to 0: a last byte may take less than the clock can tell apart
            left[i] = 0.0 if done_s[i] <= next_s else left[i] - rate * (next_s - at_s)
        at_s = next_s
