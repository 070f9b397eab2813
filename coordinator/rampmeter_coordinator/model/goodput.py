"""What became of the time of jobs: useful, or lost and by what. Sums only; `attempts` says what is charged to what.

Measured against the coordinator's clock. `Cause` is about GPUs that had a job: time in which nobody heard of the job is
not observed and in no sum. Useful is what is left of the observed time, so what an attempt has not saved yet counts as
useful until it is lost.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum


class Cause(StrEnum):
    """What time was lost by.

    stalled    training stood still for a save, or was slowed down beside a flush
    waiting    GPUs were idle in the queue for a slot: restores, saves of synchronous jobs
    rework     work that was not durable when the attempt died
    restart    from the last contact of an attempt to the first step of the next
    discarded  work given up on purpose: an older checkpoint was restored by name
    """

    STALLED = "stalled"
    WAITING = "waiting"
    REWORK = "rework"
    RESTART = "restart"
    DISCARDED = "discarded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Seconds of a job, or GPU-seconds of a pool: those observed and, by cause, those that were lost of them."""

    observed: float = 0.0
    stalled: float = 0.0
    waiting: float = 0.0
    rework: float = 0.0
    restart: float = 0.0
    discarded: float = 0.0

    @property
    def lost(self) -> float:
        return self.stalled + self.waiting + self.rework + self.restart + self.discarded

    @property
    def useful(self) -> float:
        """The rest; never below 0, since causes may overlap a little (a stall in work that is lost later)."""
        return max(0.0, self.observed - self.lost)


_ORDER = tuple(field.name for field in fields(Account))
_PLACES: Mapping[Cause | None, int] = {None: 0} | {cause: _ORDER.index(cause.value) for cause in Cause}
OBSERVED = None
"""What is charged to the account for time in which a job was heard of."""

_PACKED = struct.Struct(f"<{len(_ORDER)}d")
NOTHING = b""
"""The packed account of a job of which nothing was observed. Packed, an account takes 81 bytes, not 200."""


def unpacked(account: bytes) -> Account:
    """The account of a job. One of an older or a newer writer, with fewer or more causes, is read as far as known."""
    return Account(**dict(zip(_ORDER, _values(account), strict=True)))


def from_dict(kept: Mapping[str, float]) -> Account:
    """An account as a store keeps that of a pool; names that are not known are dropped."""
    return Account(**{name: amount for name, amount in kept.items() if name in _ORDER})


def packed(account: Account) -> bytes:
    """The other way round."""
    return _PACKED.pack(*(getattr(account, name) for name in _ORDER))


def charged(account: bytes, cause: Cause | None, amount: float) -> bytes:
    """The account with `amount` more of this cause, or OBSERVED."""
    values = _values(account)
    values[_PLACES[cause]] += amount
    return _PACKED.pack(*values)


def _values(account: bytes) -> list[float]:
    return list(_PACKED.unpack(account[: _PACKED.size].ljust(_PACKED.size, b"\0")))
