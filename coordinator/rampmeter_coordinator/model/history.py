"""What a job's attempts have shown so far: how often they failed, how long they took to come back, where time went.

Plain memory, kept over attempts and restarts of the coordinator; a job has none until there is something to keep.
`failures`, `restarts` and `goodput` say what is in it. Numbers of failures and GPU-hours fade with age (`failures`).
"""

from msgspec import Struct

from rampmeter.core.messages import EndReason, Survives
from rampmeter_coordinator.model.goodput import NOTHING


class Belief(Struct, frozen=True, gc=False, kw_only=True):
    """What the failures of a pool have shown, as all its jobs are told: faded numbers, the prior not included.

    num_site, site_s   events that took several jobs at once, and the time in which at least one job ran
    """

    num_failures: float = 0.0
    gpu_hours: float = 0.0
    num_site: float = 0.0
    site_s: float = 0.0


PRIOR = Belief()
"""Before anything was seen."""


class History(Struct, omit_defaults=True, gc=False, kw_only=True):
    """Of one job.

    credited_s         up to here its time has been accounted for; its evidence is as old as this
    num_failures       failures of this job, faded
    num_pooled         of these what counts for the pool: less where others failed with it
    gpu_hours          that it ran for, faded
    share              of `num_pooled` and `gpu_hours`, what the pool's sums have in them
    num_interruptions  attempts that were replaced without having finished or been cancelled
    kept_step          what the attempt before this one left behind
    step_s             how long a step of it took
    account            seconds by what became of them (`goodput`)

    Of the newest attempt:
    ended              the reason that its goodbye gave
    is_up              it has told how its start went ...
    startup_s          ... and this is from its start to its first step
    queued_s           what its restore waited for a slot
    unheard_s          since its newest durable state, or its start, nothing was heard of it for so long
    is_announced       its newest save has a deadline, for its end is announced ...
    is_saved           ... and was committed
    """

    credited_s: float
    survives: Survives = Survives.NODE
    num_failures: float = 0.0
    num_pooled: float = 0.0
    gpu_hours: float = 0.0
    share: float = 1.0
    num_interruptions: int = 0
    kept_step: int | None = None
    step_s: float | None = None
    believed_restart_s: float | None = None
    down_s: float | None = None
    num_down: int = 0
    load_s: float | None = None
    num_load: int = 0
    warm_up_s: float | None = None
    num_warm_up: int = 0
    account: bytes = NOTHING
    ended: EndReason | None = None
    is_up: bool = False
    startup_s: float = 0.0
    queued_s: float = 0.0
    unheard_s: float = 0.0
    is_announced: bool = False
    is_saved: bool = False
