"""What ranks say to each other, as values: an `Event` in the log that all read in the same order, `Post` and `Word`.

The log holds what everybody must agree on; of two events that say the opposite the first one stands. A `Post` is the
newest state of one rank, a `Word` that of rank 0; only the last one counts. Nothing here decides anything.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from rampmeter.core.fields import (
    Bool,
    Bytes,
    Count,
    MaybeBytes,
    MaybeCount,
    MaybeRate,
    MaybeSeconds,
    Seconds,
    Text,
)
from rampmeter.core.messages import FailReason

_MAX_LINE_CHARS = 300
Line = Annotated[str, Text(r"[ -~]*", _MAX_LINE_CHARS)]


def as_line(text: str) -> str:
    """Any text as one that an `Event` may carry."""
    printable = "".join(char if " " <= char <= "~" else " " for char in text)
    return printable[:_MAX_LINE_CHARS]


class Purpose(StrEnum):
    """What all ranks are to do at the same call of `step()`."""

    SAVE = "save"
    STOP = "stop"


class EventKind(StrEnum):
    PROPOSED = "proposed"  # by rank 0: do this at that call, if all can
    COMMITTED = "committed"
    ABORTED = "aborted"
    OPENED = "opened"  # all ranks hold a snapshot of the same step
    MET = "met"  # all bytes of all ranks are durable
    FAILED = "failed"  # the save fails, because of this rank
    NOTICED = "noticed"  # this rank was told that the job ends


VERDICTS = frozenset({EventKind.COMMITTED, EventKind.ABORTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One entry of the log. `number` counts proposals; a save has the number of the proposal that began it.

    rank      who is meant: who failed, cannot, or was told
    at_call   the call of `step()`, counted from 1 and alike on all ranks
    detail    of a proposal what its maker wants to hand over, of all others why
    reason    of a failure the word for it
    new_group the process group of saves is to be replaced in that call, before anything else
    """

    kind: EventKind
    number: Count = 0
    rank: Count = 0
    at_call: Count = 0
    purpose: Purpose = Purpose.SAVE
    detail: Line = ""
    reason: FailReason = FailReason.NONE
    new_group: Bool = False


class Stage(StrEnum):
    """How far a rank is with its save."""

    NONE = "none"
    JOINED = "joined"  # it has its snapshot; the process that is to write it is not there yet
    HOLDING = "holding"  # it has its snapshot and has not written
    READY = "ready"  # it knows how many bytes it is going to write
    DONE = "done"  # its bytes are durable
    ENDED = "ended"  # the save is over for it, in one way or the other


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A rank's answer to the proposal `number`: where it was when it read it. Passed = it cannot be there in time.

    `step` is what the caller of `step()` said in that call; absent before the first.
    """

    number: Count = 0
    num_calls: Count = 0
    step: MaybeCount = None
    passed: Bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A rank's share of the save `number`; durations as in FlowCounters. planned_bytes is absent before READY."""

    number: Count = 0
    stage: Stage = Stage.NONE
    step: Count = 0
    planned_bytes: MaybeBytes = None
    done_bytes: Bytes = 0
    throttled_s: Seconds = 0.0
    blocked_s: Seconds = 0.0
    busy_s: Seconds = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Whether a process beside training can write for this rank, and should.

    is_known    its state was seen
    is_wished   it was asked for, or has so many tensors that they would slow training
    obstacle    why it cannot; empty = it can
    group       in which its writer is with those of the other ranks; 0 = in none
    """

    is_known: Bool = False
    is_wished: Bool = False
    obstacle: Line = ""
    group: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """The newest state of one rank, beside a beat that grows while it lives.

    num_calls   of `step()` so far
    concluded   the newest proposal that is behind it: begun, missed or dropped
    applied     the version of the rate that its writer has
    num_read    how much of the log it has read
    needs_group the collectives of its last save failed: they need a new process group
    """

    num_calls: Count = 0
    answer: Answer = Answer()
    concluded: Count = 0
    share: Share = Share()
    applied: Count = 0
    num_read: Count = 0
    needs_group: Bool = False
    left: Bool = False
    beside: Beside = Beside()


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """The newest state of rank 0: what the job may write now. `beat` grows while it lives.

    bytes_per_s   for the whole job; absent = unthrottled
    left_s        how long that is valid, counted from when the word was said; absent = no end
    total_bytes   what all ranks are going to write in the save `number`; absent = not all have said so
    max_streams   so many ranks may write at once, each its part of the rate; absent = all, by their bytes
    turn          with it: only ranks below this number may write now
    missing       which rank rank 0 hears no more, in words; empty = none
    """

    beat: Count
    number: Count = 0
    version: Count = 0
    bytes_per_s: MaybeRate = None
    left_s: MaybeSeconds = None
    total_bytes: MaybeBytes = None
    max_streams: MaybeCount = None
    turn: Count = 0
    missing: Line = ""
