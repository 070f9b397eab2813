"""What a job's record has only where there is something to say: parts made on demand, or one that all others share.

A pool has many jobs that are alike, and most of them have never asked for a slot, nor been in trouble: what only some
of them need takes no room in the others. Plain memory; who owns a part decides what is in it.
"""

from functools import lru_cache

from msgspec import Struct

from rampmeter.core.messages import FailReason, Fence, GoneReason, Kind

NUM_SHARED_TERMS = 1024


class Record(Struct, omit_defaults=True, gc=False):
    """Written without what has its default; never part of a cycle, so the garbage collector need not walk it."""


class Terms(Struct, omit_defaults=True, frozen=True, gc=False, kw_only=True):
    """What the user set for a job, as its newest attempt has registered it."""

    tenant: str | None = None
    interval_min_s: float | None = None
    interval_max_s: float | None = None
    synchronous: bool = False


NO_TERMS = Terms()


@lru_cache(maxsize=NUM_SHARED_TERMS, typed=True)
def shared_terms(
    tenant: str | None, interval_min_s: float | None, interval_max_s: float | None, synchronous: bool
) -> Terms:
    """One record for all jobs of a tenant that set the same."""
    terms = Terms(
        tenant=tenant,
        interval_min_s=interval_min_s,
        interval_max_s=interval_max_s,
        synchronous=synchronous,
    )
    return NO_TERMS if terms == NO_TERMS else terms


class Mishaps(Struct, omit_defaults=True, frozen=True, gc=False, kw_only=True):
    """Saves of the newest attempt that did not become what they should have, as it counts them."""

    num_failed: int = 0
    last_failure: FailReason = FailReason.NONE
    num_skipped: int = 0
    num_ungoverned: int = 0


NO_MISHAPS = Mishaps()


class Save(Record, kw_only=True):
    """What the coordinator saw of the save, or restore, that goes on, under however many leases.

    begun_s   when its slot was first granted: it began later; None = it began unseen
    """

    kind: Kind
    begun_s: float | None
    is_doubted: bool = False
    """Something was told of it that cannot be."""


class Turn(Record, kw_only=True):
    """An attempt's place among those that ask for slots, and what has become of what it was granted (`leasing`).

    asked_s           when it asked last
    queued_since_s    when it joined the queue; None once it is granted
    save_since_s      when the save that goes on was first granted: a lapsed one keeps its place among those that write
    num_not_ready     leases in a row that were taken back before their first byte was in hand
    ended_fence       of its newest lease, where that is over and the end of the save has not been told
    ended_reason      why its newest lease is over
    notice_served     an urgent save was committed: the attempt should end now
    num_false_alarms  urgent saves after which the attempt just went on: its next ones wait like all others
    """

    asked_s: float = 0.0
    queued_since_s: float | None = None
    save_since_s: float | None = None
    save: Save | None = None
    num_not_ready: int = 0
    ended_fence: Fence | None = None
    ended_reason: GoneReason = GoneReason.EXPIRED
    notice_served: bool = False
    num_false_alarms: int = 0


class Claims(Struct, omit_defaults=True, frozen=True, gc=False, kw_only=True):
    """What a job says of itself and nobody can measure; `wish_s` is its longest interval."""

    num_gpus: int
    mtbf_s: float | None = None
    wish_s: float | None = None


class Evidence(Record, kw_only=True):
    """What stands behind the figures of a job, and those of them that only saves show (`estimates`).

    num_committed      saves, also those that taught nothing
    write_s            robust estimates, as the next two; until there is a sample, what the user believes
    at_work_s          of the write time what was not spent asleep for the lease's sake: our own queue must not lengthen
                       intervals
    of_*               number of samples in each figure; 0 = believed
    num_gpus, mtbf_s   those that its newest save was made under, as far as they were borne out
    num_absurd         reports that could not be, and claims that stand alone
    absurd             the newest claims that were counted so: not again before there are other ones
    """

    num_committed: int = 0
    write_s: float | None = None
    at_work_s: float | None = None
    lead_s: float | None = None
    eps: float | None = None
    max_bytes_per_s: int | None = None
    num_gpus: int | None = None
    mtbf_s: float | None = None
    of_bytes: int = 0
    of_stall: int = 0
    of_write: int = 0
    of_lead: int = 0
    of_eps: int = 0
    of_rate: int = 0
    num_absurd: int = 0
    absurd: Claims | None = None


NO_EVIDENCE = Evidence()
"""Stands where a job has none; only to look at."""
