"""What one rank may write of what the job may write: its share of the rate, until a time on its own machine's clock.

Rank i holds b_i / b of the rate, so that all shards are finished together; before all b_i are known nobody writes.
Where a lease allows fewer writers than there are ranks they take turns, each with an equal part of the rate.

The clocks of two machines do not compare, so rank 0 says how long a rate is still valid, and each reader counts from
before that was worked out: from when it began a look that found a word at least two older, for rank 0 makes a word only
after the one before it is in the store. Whoever was held up on the way writes shorter, never longer.
"""

from collections import deque
from dataclasses import dataclass

from rampmeter.ranks.words import Word


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRate:
    """What the writer of one rank may do. bytes_per_s None = unthrottled; until_s None = no end."""

    version: int
    bytes_per_s: int | None
    until_s: float | None


class RateReader:
    """One per rank: turns the words of rank 0 into rates of its own."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._looks: deque[tuple[int, float]] = (
            deque()
        )  # (beat found, when the look began), of each beat the last

    def read(self, word: Word, began_s: float, *, number: int, planned_bytes: int | None) -> RankRate | None:
        """What follows for the save `number` from a look that began at `began_s`; None = go on as before."""
        said_after_s = self._look(word.beat, began_s)
        if word.number != number or planned_bytes is None or word.total_bytes is None:
            return None
        if said_after_s is None:
            return None
        until_s = None if word.left_s is None else said_after_s + word.left_s
        if word.max_streams is None:
            rate = rank_rate(word.bytes_per_s, planned_bytes, word.total_bytes)
        else:
            rate = stream_rate(word.bytes_per_s, word.max_streams) if self._rank < word.turn else 0
        return RankRate(version=word.version, bytes_per_s=rate, until_s=until_s)

    def _look(self, beat: int, began_s: float) -> float | None:
        """Note the look; a time that lies before the word was worked out, if one is known."""
        if self._looks and self._looks[-1][0] == beat:
            self._looks.pop()
        self._looks.append((beat, began_s))
        while len(self._looks) > 1 and self._looks[1][0] <= beat - 2:
            self._looks.popleft()
        oldest_beat, oldest_s = self._looks[0]
        return oldest_s if oldest_beat <= beat - 2 else None


def rank_rate(bytes_per_s: int | None, planned_bytes: int, total_bytes: int) -> int | None:
    """b_i / b of the rate, rounded down, so that the ranks together never have more; None stays None."""
    if bytes_per_s is None:
        return None
    return bytes_per_s * planned_bytes // total_bytes if total_bytes > 0 else 0


def stream_rate(bytes_per_s: int | None, max_streams: int) -> int | None:
    """What one of so many writers may write, whatever its bytes: whoever comes next gets what was its predecessor's."""
    return None if bytes_per_s is None else bytes_per_s // max_streams
