"""Who is silent: rank 0 counts for each rank the time in which its beat did not grow, and each rank does so for rank 0.

Only time in which somebody listened counts: a listener that was stopped itself blames nobody for the time it was away.
"""

from collections.abc import Collection, Mapping

BEAT_S = 0.25
SLOW_BEAT_S = 1.0
_MANY_RANKS = 256
SILENT_S = 10.0
"""A rank that is silent for so long takes part in nothing any more until it is heard again."""

_MISSED_BEATS = 8
_LONGEST_GAP_S = 1.5


def beat_s(num_ranks: int) -> float:
    """How often each rank posts: each 0.25 s, above 256 ranks each second."""
    return SLOW_BEAT_S if num_ranks > _MANY_RANKS else BEAT_S


def missed_s(num_ranks: int) -> float:
    """Silent for so long a rank is named where the ranks have lost each other; longer than any gap that is counted."""
    return _MISSED_BEATS * beat_s(num_ranks)


class Silence:
    """Of the ranks that one listener listens to."""

    def __init__(self, now_s: float) -> None:
        self._listened_s = now_s
        self._beats: dict[int, int] = {}
        self._silent_s: dict[int, float] = {}

    def listened(self, beats: Mapping[int, int], now_s: float) -> None:
        """These are the newest beats, and were looked at now."""
        gap_s = min(now_s - self._listened_s, _LONGEST_GAP_S)
        self._listened_s = now_s
        for rank, beat in beats.items():
            has_grown = beat != self._beats.get(rank)
            self._silent_s[rank] = 0.0 if has_grown else self._silent_s[rank] + gap_s
            self._beats[rank] = beat

    def silent(self) -> dict[int, str]:
        """Who is silent, with the words for it."""
        return {
            rank: f"has been silent for {silent_s:.0f} s"
            for rank, silent_s in self._silent_s.items()
            if silent_s >= SILENT_S
        }

    def longest(self, least_s: float, *, but: Collection[int] = ()) -> str:
        """Who has been silent the longest, for at least so long, in words; empty = nobody. `but`: who is not meant."""
        silent_s, rank = max(
            ((silent_s, -rank) for rank, silent_s in self._silent_s.items() if rank not in but),
            default=(0.0, 0),
        )
        return f"rank {-rank} has been silent for {silent_s:.0f} s" if silent_s >= least_s else ""
