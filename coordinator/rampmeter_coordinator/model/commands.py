"""What goes into the ledger and what comes out of it: commands, replies, changes. Values only.

A command without a reply in its outcome is held: the reply comes with the outcome of a later command (a release that
makes room, a tick at the end of the hold). The engine maps (job_uid, attempt, seq) to whoever waits for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import Struct

from rampmeter.core.messages import AnyAnswer, RefusalReason, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed: expire, answer what was held long enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnected:
    """The client of a held request has gone: it waits no more."""

    job_uid: str
    attempt: int
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """The price at which what all ask fits has been worked out: plans follow it from now on.

    absurd   jobs whose claims of M and GPUs were found to be so, and count for less
    """

    price_gpu_s_per_byte: float
    absurd: tuple[str, ...] = ()


Command = Request | Tick | Disconnected | Priced


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A request that changed nothing. Becomes problem JSON (RFC 9457) with this HTTP status."""

    reason: RefusalReason
    status: int
    detail: str
    field: str | None = None
    stored_attempt: int | None = None


class Reply(Struct, frozen=True, kw_only=True, gc=False):
    """The answer to one request, told apart by who sent it and its number."""

    job_uid: str
    attempt: int
    seq: int
    body: AnyAnswer | Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What a store must keep before the replies may go out. A record of None is deleted."""

    records: Mapping[str, bytes | None]
    meta: bytes
