"""What the writer tells of its save while it writes: how far it is, what it counted, that it lives.

The daemon writes, training reads, each 20 ms. Words for people come at the end, over the socket.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum

from rampmeter.daemon.records import TwoRecords
from rampmeter.throttle import FlowCounters

_BODY = struct.Struct("<QB?QQQQQddd")
"""Save, stage, in storage, beat, followed, share, planned, done, throttled, blocked, busy."""

LOOK_S = 0.02
"""How often both sides look into each other's cell."""


class Stage(IntEnum):
    """How far a save is, in this order."""

    TAKEN = 1  # the order is read
    READY = 2  # of many ranks: this one knows what it is going to write
    WRITING = 3  # the first byte is in hand
    DURABLE = 4  # of many ranks: all bytes of this one are, and it waits for the others
    COMMITTING = 5  # all bytes are durable


NOTHING_YET = FlowCounters(done_bytes=0, throttled_s=0.0, blocked_s=0.0, busy_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tidings:
    """What a writer tells of one save.

    in_storage    its writing thread is in a call into the storage that carries no bytes
    beat          grows with each look of the writer, whatever its writing thread does
    followed      the word that it obeys
    share_bytes   from READY on: what this rank counts for in the rate of its job
    planned_bytes from WRITING on: of all tensors that it writes
    """

    number: int
    stage: Stage = Stage.TAKEN
    in_storage: bool = False
    beat: int = 0
    followed: int = 0
    share_bytes: int = 0
    planned_bytes: int = 0
    counters: FlowCounters = NOTHING_YET


class TidingsCell:
    """Over the memory behind a descriptor, as `daemon.cell.Cell`."""

    def __init__(self, descriptor: int) -> None:
        self._records = TwoRecords(descriptor, _BODY)

    def write(self, tidings: Tidings) -> None:
        """Tell this from now on. One thread of one process at a time."""
        counters = tidings.counters
        self._records.write(
            tidings.number,
            tidings.stage,
            tidings.in_storage,
            tidings.beat,
            tidings.followed,
            tidings.share_bytes,
            tidings.planned_bytes,
            counters.done_bytes,
            counters.throttled_s,
            counters.blocked_s,
            counters.busy_s,
        )

    def read(self, number: int) -> Tidings | None:
        """The newest of save `number`; None before there are any, or where the cell tells of another save."""
        record = self._records.read()
        if record is None or record[0] != number:
            return None
        _, stage, in_storage, beat, followed, share_bytes, planned_bytes, done_bytes, *times_s = record
        throttled_s, blocked_s, busy_s = times_s
        counters = FlowCounters(
            done_bytes=done_bytes, throttled_s=throttled_s, blocked_s=blocked_s, busy_s=busy_s
        )
        return Tidings(
            number=number,
            stage=Stage(stage),
            in_storage=in_storage,
            beat=beat,
            followed=followed,
            share_bytes=share_bytes,
            planned_bytes=planned_bytes,
            counters=counters,
        )

    def close(self) -> None:
        """Unmap it."""
        self._records.close()
