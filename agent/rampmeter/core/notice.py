"""An announced end of the job, and saves that are given up. Values only; the pacer decides with them.

A job that is told to go saves once more if that can be durable in time. Bytes that cannot be are not written at all:
they would be lost, and would take the storage from others who can still make it.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

ANSWER_WITHIN_S = 2.0
"""A save with a deadline never waits longer than this for the first answer: nobody may be there."""


class GiveUp(StrEnum):
    """Why a save is given up."""

    WILL_NOT_FIT = "will_not_fit"  # said by the coordinator: not durable before the deadline
    TOO_LATE = "too_late"  # no place came before the last moment to begin
    MAKE_ROOM = "make_room"  # GPUs that idle need the storage


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """A save that is given up.

    left_s       until the announced end; None where none was announced
    fits_bytes   how much could have been written before it; None = not told
    again_at_s   when the job asks again, on the agent's clock
    """

    reason: GiveUp
    left_s: float | None
    fits_bytes: int | None
    again_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """The job is about to be ended. Times are readings of the agent's clock.

    since_s        when the pacer heard of it
    deadline_at_s  when the job will be ended
    need_s         from a grant to durable at the job's own full speed; 0 = unknown
    is_heard       the coordinator has answered what was sent since
    """

    since_s: float
    deadline_at_s: float
    need_s: float = 0.0
    is_heard: bool = False

    @property
    def answer_by_s(self) -> float:
        """Whoever has not answered by then is taken for absent."""
        return self.since_s + ANSWER_WITHIN_S

    @property
    def give_up_at_s(self) -> float:
        """The last moment: what is not granted by then is not durable in time."""
        return self.deadline_at_s - self.need_s

    def answered(self, first_sent_s: float) -> "Notice":
        """An answer came to what was first sent at `first_sent_s`."""
        return self if first_sent_s < self.since_s else replace(self, is_heard=True)

    def given_up(self, reason: GiveUp, now_s: float, *, fits_bytes: int | None = None) -> GivenUp:
        """The save before the end is not made. A job that outlives its deadline was told wrongly, and saves then."""
        left_s, again_at_s = self.deadline_at_s - now_s, max(now_s, self.deadline_at_s)
        return GivenUp(reason=reason, left_s=left_s, fits_bytes=fits_bytes, again_at_s=again_at_s)
