"""How much slower training is beside a flush: steps during flushes against steps between them. Pure.

eps is the time that training lost beside a flush, divided by the flush's time at work: its sleep in the bucket disturbs
nobody. What training does now and then anyway is not blamed on a flush: a step between flushes is the median of many
stretches, a piece of a flush that took far longer than its other pieces (an evaluation, a data stall) is left out, and
where stretches between flushes differ so much that the loss cannot be told from them there is no figure. Flushes beside
which only a step or two ended are taken together until there are enough.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

ENOUGH_STEPS = 5
"""A stretch between flushes and what is beside flushes need as many, else they say nothing."""

_ENOUGH_STRETCHES = 3
_ENOUGH_PIECES = 3
"""Of fewer nobody can tell which one is unlike the others."""

_NUM_STRETCHES = 32
_NUM_LOSSES = 5
_UNLIKE = 4.0
"""A piece this many times slower than the median piece was slow for another reason."""

_MOST_NOISE = 0.1
"""In units of eps: where the spread of the steps alone would make as much, there is no figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """So many steps in so many seconds, from the end of one step to the end of another."""

    num_steps: int
    duration_s: float


class SlowDown:
    """One per attempt."""

    def __init__(self) -> None:
        self._steps_s: deque[float] = deque(maxlen=_NUM_STRETCHES)
        self._losses: deque[float] = deque(maxlen=_NUM_LOSSES)
        self._begin_sample()

    def _begin_sample(self) -> None:
        self._pieces: list[Stretch] = []
        self._flush_s = 0.0
        self._at_work_s = 0.0

    def note_between(self, stretch: Stretch) -> None:
        """Training had the machine for itself."""
        if stretch.num_steps >= ENOUGH_STEPS:
            self._steps_s.append(stretch.duration_s / stretch.num_steps)

    def note_flush(self, pieces: Sequence[Stretch], *, flush_s: float, at_work_s: float) -> float | None:
        """eps in [0, 1] after a flush of `flush_s`, of which it was `at_work_s` at work; None = cannot be told (yet).

        The median of the last few samples: noise of either sign goes in, a negative median is 0.
        """
        self._pieces += pieces
        self._flush_s += flush_s
        self._at_work_s += at_work_s
        if len(self._pieces) < _ENOUGH_PIECES or _num_steps(self._pieces) < ENOUGH_STEPS:
            return None
        loss = self._loss()
        self._begin_sample()
        if loss is None:
            return None
        self._losses.append(loss)
        return min(max(median(self._losses), 0.0), 1.0)

    def _loss(self) -> float | None:
        if len(self._steps_s) < _ENOUGH_STRETCHES or self._at_work_s <= 0.0:
            return None
        step_s = median(self._steps_s)
        spread = median(abs(s - step_s) for s in self._steps_s) / step_s
        if spread * self._flush_s > _MOST_NOISE * self._at_work_s:
            return None
        alike = _alike(self._pieces)
        lost_share = 1.0 - _num_steps(alike) * step_s / sum(piece.duration_s for piece in alike)
        return lost_share * self._flush_s / self._at_work_s


def _num_steps(pieces: Sequence[Stretch]) -> int:
    return sum(piece.num_steps for piece in pieces)


def _alike(pieces: Sequence[Stretch]) -> list[Stretch]:
    """The pieces without those that were slow for another reason."""
    longest_s = _UNLIKE * median(piece.duration_s / piece.num_steps for piece in pieces)
    return [piece for piece in pieces if piece.duration_s <= longest_s * piece.num_steps]
