"""An announced end of the job, and saves that are given up. Values only; the pacer decides with them.

A job that is told to go saves once more if that can be durable in time. Bytes that cannot be are not written at all:
they would be lost, and would take the storage from others who can still make it.
"""

from dataclasses import dataclass
from enum import StrEnum

ANSWER_WITHIN_S = 2.0
"""A save with a deadline never waits longer than this for the first answer: nobody may be there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """The job is about to be ended. Times are readings of the agent's clock.

    since_s        when the pacer heard of it
    deadline_at_s  when the job will be ended
    need_s         from a grant to durable at the job's own full speed; 0 = unknown
    """

    since_s: float
    deadline_at_s: float
    need_s: float = 0.0

    @property
    def answer_by_s(self) -> float:
        """Whoever has not answered by then is taken for absent."""
        return self.since_s + ANSWER_WITHIN_S

    @property
    def give_up_at_s(self) -> float:
        """The last moment: what is not granted by then is not durable in time."""
        return self.deadline_at_s - self.need_s


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
