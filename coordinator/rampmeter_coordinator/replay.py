"""Decides again what a coordinator has decided, from its log, and compares every reply, byte for byte.

The log's newest segment has how the ledger began and every command since, with its time and its replies. The same
ledger code gives the same replies; where it does not, a rule has changed or the log is not what was decided. Changes
nothing, neither in a store nor in a pool.
"""

from dataclasses import dataclass

from rampmeter_coordinator.codec import decode_command, encode_replies
from rampmeter_coordinator.model.encoding import encode
from rampmeter_coordinator.model.ledger import Ledger
from rampmeter_coordinator.opening import Beginning
from rampmeter_coordinator.store.protocol import LogRow, Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first decision that came out otherwise. `row` counts from 1 at the beginning of the segment."""

    row: int
    now_s: float
    command: str
    kept: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a replay found. `release` decided then."""

    epoch: int
    release: str
    num_decisions: int
    difference: Difference | None = None


def replay(segment: Segment) -> Replay:
    """Decide a whole segment again, up to the first difference. It must be whole: `num_missing` 0."""
    assert segment.num_missing == 0
    beginning = Beginning.from_bytes(segment.opening)
    ledger = beginning.ledger(segment.epoch, segment.records, segment.meta)
    difference = None
    for number, row in enumerate(segment.rows, 1):
        difference = _decide_again(ledger, row, number)
        if difference is not None:
            break
    return Replay(
        epoch=segment.epoch,
        release=beginning.release,
        num_decisions=len(segment.rows),
        difference=difference,
    )


def _decide_again(ledger: Ledger, row: LogRow, number: int) -> Difference | None:
    command = decode_command(row.command)
    try:
        replies = ledger.apply(command, row.now_s)
    except Exception:  # the coordinator answered 500, logged no reply and went on
        replies = ()
    new = encode_replies((reply, encode(reply.body)) for reply in replies)
    if new == row.replies:
        return None
    return Difference(
        row=number,
        now_s=row.now_s,
        command=row.command.decode(),
        kept=row.replies.decode(),
        new=new.decode(),
    )
