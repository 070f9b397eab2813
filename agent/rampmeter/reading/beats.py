"""What the ranks of a job tell each other with each beat of a restore, as sums of whole numbers. Pure.

Rank 0 says what all may read together, the others add nothing to that; each says what it has read so far. Rank i holds
b_i / b of the rate, where b_i are the bytes that it verifies, so that all are finished together.

The clocks of two machines do not compare, so rank 0 says how long a rate is still valid. A rank counts from when it
entered the beat before, for rank 0 made its word only when all ranks had entered that. Whoever was held up on the way
reads shorter, never longer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rampmeter.ranks.rates import rank_rate
from rampmeter.throttle import FlowCounters

_NONE = -1
_US_PER_S = 1_000_000
_SMALLEST_SHARE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadWord:
    """What all ranks together may read. bytes_per_s None = unthrottled; left_s None = without end."""

    bytes_per_s: int | None
    left_s: float | None


def numbers(word: ReadWord | None, counters: FlowCounters, part: float) -> list[int]:
    """What a rank puts into a beat. `word` is rank 0's, None elsewhere; `part` = b_i / b.

    Bytes add up; of the times the mean is told, in which a rank counts by its bytes, as in a save.
    """
    times_s = (counters.throttled_s, counters.blocked_s, counters.busy_s)
    return [*_of_word(word), counters.done_bytes, *(int(time_s * part * _US_PER_S) for time_s in times_s)]


def _of_word(word: ReadWord | None) -> tuple[int, int]:
    if word is None:
        return 0, 0
    left_us = _NONE if word.left_s is None else int(max(0.0, word.left_s) * _US_PER_S)
    return _NONE if word.bytes_per_s is None else word.bytes_per_s, left_us


def heard(sums: Sequence[int]) -> tuple[ReadWord, FlowCounters]:
    """Rank 0's word and the job's counters, from the sums of all ranks' numbers."""
    rate, left_us, done_bytes, *times_us = sums
    throttled_s, blocked_s, busy_s = (time_us / _US_PER_S for time_us in times_us)
    word = ReadWord(
        bytes_per_s=None if rate == _NONE else rate,
        left_s=None if left_us == _NONE else left_us / _US_PER_S,
    )
    counters = FlowCounters(
        done_bytes=done_bytes, throttled_s=throttled_s, blocked_s=blocked_s, busy_s=busy_s
    )
    return word, counters


def weights(loads_bytes: Sequence[int]) -> list[int]:
    """What the ranks' shares of the rate are to each other, from the bytes that each verifies.

    A rank with hardly any has a thousandth of an equal share: rounded down, b_i / b of a rate may be nothing.
    """
    least = sum(loads_bytes) // (_SMALLEST_SHARE * len(loads_bytes))
    return [max(load_bytes, least) if load_bytes else 0 for load_bytes in loads_bytes]


class RankReading:
    """What one rank may read of what the job may read. `all_weights` are by rank."""

    def __init__(self, rank: int, all_weights: Sequence[int]) -> None:
        self._weight = all_weights[rank]
        self._total = sum(all_weights)
        self._entered_s: float | None = None
        self._before_s: float | None = None

    def enters(self, now_s: float) -> None:
        """This rank enters a beat."""
        self._before_s, self._entered_s = self._entered_s, now_s

    def follows(self, word: ReadWord) -> tuple[int | None, float | None]:
        """Bytes per second, and until when on this machine's clock, from the word that the beat brought."""
        if word.left_s is None:
            until_s = None
        elif self._before_s is None:
            return 0, None  # in the first beat: nobody knows how old it is
        else:
            until_s = self._before_s + word.left_s
        return rank_rate(word.bytes_per_s, self._weight, self._total), until_s
