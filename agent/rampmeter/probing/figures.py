"""What a probe measured, and the capacity that may be set from it. Pure arithmetic."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

FADED = 1.5
"""Early writes were so many times faster than late ones: something in front of the storage took them."""

MORE = 1.2
"""More writers gave so many times more: there may be more still."""

SHORT_S = 2.0
"""Writes that are over sooner say nothing about what is sustained."""

LONG_S = 5.0
"""What a round should write for."""

MIN_MARKS = 16
"""So many readings are needed to tell early from late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What one writer did: clock readings, and `marks` (clock reading, bytes so far) after each push-out."""

    begun_s: float
    written_s: float
    durable_s: float
    num_bytes: int
    marks: tuple[tuple[float, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One number of writers. Rates are those of all its writers together.

    write_s     from the first byte to the last one handed over; durable_s  to the end of the last sync
    sync_s      the longest last sync of a writer
    early, late rates of the first and second half of the writing; None if it was too little to tell
    """

    num_writers: int
    num_bytes: int
    write_s: float
    durable_s: float
    sync_s: float
    early_bytes_per_s: float | None
    late_bytes_per_s: float | None
    num_small_files: int
    small_file_s: float
    read_bytes: int
    read_s: float

    @property
    def written_bytes_per_s(self) -> float:
        return _rate(self.num_bytes, self.write_s)

    @property
    def durable_bytes_per_s(self) -> float:
        return _rate(self.num_bytes, self.durable_s)

    @property
    def read_bytes_per_s(self) -> float:
        return _rate(self.read_bytes, self.read_s)

    @property
    def sustained_bytes_per_s(self) -> float:
        """The lower of the rate to durable and that of the second half: what would go on."""
        late = self.late_bytes_per_s
        return self.durable_bytes_per_s if late is None else min(late, self.durable_bytes_per_s)

    @property
    def faded(self) -> bool:
        """It began much faster than it went on."""
        early, late = self.early_bytes_per_s, self.late_bytes_per_s
        return early is not None and late is not None and early > FADED * late


def _rate(num_bytes: int, duration_s: float) -> float:
    return num_bytes / duration_s if duration_s > 0 else 0.0


def halves(writers: Sequence[Written]) -> tuple[float | None, float | None]:
    """Rates of the first and the second half of the time of writing, all writers together."""
    if sum(len(writer.marks) for writer in writers) < MIN_MARKS:
        return None, None
    begun_s = min(writer.begun_s for writer in writers)
    written_s = max(writer.written_s for writer in writers)
    half_s = (written_s - begun_s) / 2.0
    if half_s <= 0:
        return None, None
    first = sum(_bytes_until(writer, begun_s + half_s) for writer in writers)
    total = sum(writer.num_bytes for writer in writers)
    return first / half_s, (total - first) / half_s


def _bytes_until(writer: Written, moment_s: float) -> float:
    """Bytes written until then, straight between the marks."""
    at_s, num_bytes = writer.begun_s, 0
    for next_s, next_bytes in (*writer.marks, (writer.written_s, writer.num_bytes)):
        if next_s >= moment_s:
            share = (moment_s - at_s) / (next_s - at_s) if next_s > at_s else 0.0
            return num_bytes + max(0.0, share) * (next_bytes - num_bytes)
        at_s, num_bytes = next_s, next_bytes
    return num_bytes


def best(rounds: Sequence[Round]) -> Round:
    """The round that sustained most; of equals the one with fewer writers."""
    return max(rounds, key=lambda measured: (measured.sustained_bytes_per_s, -measured.num_writers))


def careful_capacity(bytes_per_s: float) -> str:
    """A rate as a setting, rounded down to two digits: 1,298 MB/s is "1.2GB/s"."""
    value, unit = bytes_per_s, "B"
    for prefix in "KMGTPE":
        if value < 1000:
            break
        value, unit = value / 1000, f"{prefix}B"
    if value >= 100:
        return f"{int(value / 10) * 10}{unit}/s"
    return f"{int(value)}{unit}/s" if value >= 10 or unit == "B" else f"{int(value * 10) / 10:g}{unit}/s"


def unsure(rounds: Sequence[Round]) -> bool:
    """The figure itself is in doubt: too short to say, or it was still falling."""
    chosen = best(rounds)
    return chosen.durable_s < SHORT_S or chosen.faded


def long_enough(rounds: Sequence[Round]) -> str:
    """A size at which every round would write for LONG_S at the best rate, as an option: "12GiB"."""
    needed = best(rounds).sustained_bytes_per_s * LONG_S * len(rounds)
    return f"{max(1, math.ceil(needed / 2**30))}GiB"


def doubts(rounds: Sequence[Round]) -> tuple[str, ...]:
    """Why the figure may be wrong, as far as the probe itself shows."""
    chosen = best(rounds)
    found = []
    if chosen.durable_s < SHORT_S:
        found.append(
            f"The writes were over in {chosen.durable_s:.2g} s: too short to say what is sustained. Give a "
            f"larger --size, for example {long_enough(rounds)}."
        )
    if chosen.faded:
        found.append(
            "It began faster than it went on: something in front of the storage, a cache, took the first "
            "bytes. Give a larger --size until both halves agree."
        )
    fewer = [measured for measured in rounds if measured.num_writers < chosen.num_writers]
    most = max(measured.num_writers for measured in rounds)
    if chosen.num_writers == most and fewer:
        before = best(fewer)
        if chosen.sustained_bytes_per_s > MORE * before.sustained_bytes_per_s:
            found.append(
                f"{most} writers gave more than {before.num_writers}: try --writers "
                f"{most},{2 * most},{4 * most}."
            )
    return tuple(found)
