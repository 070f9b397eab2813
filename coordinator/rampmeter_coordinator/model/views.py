"""What people and metrics see of a pool: frozen copies, made on request. Times are ages or seconds from now."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rampmeter.core.messages import FailReason, Fence, Kind, LeaseState, Plan, RateReason, WaitReason
from rampmeter_coordinator.model.goodput import Account


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseView:
    """One live lease. background: a read that nobody waits for.

    would: what it would have if everybody were held to the budget; differs in shadow mode only.
    """

    job_uid: str
    job: str
    fence: Fence
    kind: Kind
    background: bool
    state: LeaseState
    bytes_per_s: int
    would_bytes_per_s: int
    reason: RateReason
    expires_in_s: float
    age_s: float
    done_bytes: int
    num_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputView:
    """Shares of the observed time of GPUs, measured: useful, and lost by cause (`goodput.Cause`). They sum to 1."""

    useful: float
    stalled: float
    waiting: float
    rework: float
    restart: float
    discarded: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WasteView:
    """Shares of run time that are lost by the formula C/T + (T/2 + W + R)/M."""

    write: float
    rework: float
    restart: float
    total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartView:
    """R and its parts, as far as they were measured, each with its number of samples.

    restart_s   measured once all parts are, until then at least what the user believes
    """

    restart_s: float
    down_s: float | None
    num_down: int
    load_s: float | None
    num_load: int
    warm_up_s: float | None
    num_warm_up: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What is believed of a job, and how many samples stand behind it: 0 = what the job said of itself, or a prior.

    value   None = nothing is known
    """

    value: float | None
    num_samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a job's interval follows from, as far as it was measured, in the units that the names end with.

    stall_s          training blocked by a save
    write_s          from snapshot to durable; at_work_s: of it what was not spent waiting for the lease's rate
    lead_s           from grant to first byte
    eps              what training loses beside a flush, as a share of the time at work
    max_bytes_per_s  what the job can write by itself, as it says
    """

    num_bytes: Estimate
    stall_s: Estimate
    write_s: Estimate
    at_work_s: Estimate
    lead_s: Estimate
    eps: Estimate
    max_bytes_per_s: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """One job as the coordinator knows it.

    counted_bytes_per_s   what it may be using now at most
    bid_gpu_s_per_byte    what a byte written now is worth to it, while it waits ...
    live_price_gpu_s_per_byte   ... beside the largest waiting bid of the pool: who bids less waits
    enforced              False in shadow mode: it is granted at once
    unsaved_s             how much would be lost now: since the newest durable snapshot, or since registration
    lost                  silent for so long that its demand counts no more
    figures               what is believed of its saves
    last_failure          why the newest of the `num_failed` saves of this attempt failed
    num_absurd            reports of it that cannot have been so, and taught nothing, and claims that stand alone
    num_failures          as they count in M: old ones fade
    num_interruptions     attempts that were replaced without having finished or been cancelled
    account_s             seconds behind `goodput`: up to its newest save, start or end, without times of silence
    modelled              what its interval, C, W, R and M say that it loses
    """

    job_uid: str
    name: str
    attempt: int
    num_gpus: int
    num_bytes: int | None
    tenant: str | None
    enforced: bool
    plan: Plan
    mtbf_s: float
    num_failures: float
    num_interruptions: int
    restart: RestartView
    account_s: Account
    goodput: GoodputView | None
    modelled: WasteView
    contact_age_s: float
    counted_bytes_per_s: int
    waiting_for_s: float | None
    wait_reason: WaitReason | None
    bid_gpu_s_per_byte: float | None
    live_price_gpu_s_per_byte: float
    step: int
    committed_step: int | None
    commit_age_s: float | None
    unsaved_s: float
    lost: bool
    stall_s: float | None
    write_s: float | None
    num_committed: int
    num_failed: int
    last_failure: FailReason
    num_skipped: int
    num_ungoverned: int
    num_absurd: int
    figures: Figures
    finished: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """One pool. granted: sum of live rates; counted: the most that may be in use; achieved: what was measured.

    budget      what may be granted in sum now: u x the configured capacity, less where storage was seen to be slow
    read_*      restores, where they have a budget of their own
    price       of the plans, solved; live_price: the largest waiting bid
    shadow      rates of leases that are not enforced; would: what those would have if everybody were

    gpu_hours_per_failure   as believed: what was seen, and the prior
    failures_per_day        expected of the jobs that run
    mtbf_s, restart_s       M and R, means over those jobs, weighted by GPUs
    account_gpu_s           GPU-seconds behind `goodput`: of all jobs since the pool's memory begins
    modelled                weighted by GPUs, beside it what the same jobs would lose without coordination:
    uncoordinated           each at its own period, all sharing the storage at random
    aligned                 all of them starting in the same moment
    """

    name: str
    capacity_bytes_per_s: int
    budget_bytes_per_s: int
    read_budget_bytes_per_s: int
    read_granted_bytes_per_s: int
    granted_bytes_per_s: int
    counted_bytes_per_s: int
    achieved_bytes_per_s: int
    price_gpu_s_per_byte: float
    live_price_gpu_s_per_byte: float
    shadow_bytes_per_s: int
    would_bytes_per_s: int
    demand_bytes_per_s: float
    num_jobs: int
    num_waiting: int
    num_leases: int
    num_silent: int
    in_grace: bool
    grace_left_s: float
    gpu_hours_per_failure: float
    failures_per_day: float
    mtbf_s: float | None
    restart_s: float | None
    account_gpu_s: Account
    goodput: GoodputView | None
    modelled: WasteView | None
    uncoordinated: WasteView | None
    aligned: WasteView | None


FAIL_REASONS = tuple(reason for reason in FailReason if reason is not FailReason.NONE)


def no_failures() -> dict[str, int]:
    """Every reason is there from the start, so that rates of a first failure are not lost."""
    return dict.fromkeys(FAIL_REASONS, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Counters since the start of the ledger's memory, for metrics. All only grow.

    would_wait    slots of jobs in shadow mode that would not have been granted at once
    will_not_fit  urgent saves that could not be written before their deadlines
    false_alarms  urgent saves after which the attempt just went on
    absurd        reports of more than can have been
    interruptions attempts that were replaced without having finished or been cancelled
    failures      of these, those that had worked and ended without a clean goodbye
    failed_saves  saves that did not become checkpoints, by reason, also those that had no lease
    """

    granted: int = 0
    waited: int = 0
    committed: int = 0
    failed: int = 0
    aborted: int = 0
    expired: int = 0
    revoked: int = 0
    written_bytes: int = 0
    would_wait: int = 0
    will_not_fit: int = 0
    false_alarms: int = 0
    absurd: int = 0
    interruptions: int = 0
    failures: int = 0
    failed_saves: Mapping[str, int] = field(default_factory=no_failures)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineRow:
    """One lease's rate from a moment on: who may write how fast since when. Seconds on the coordinator's clock."""

    at_s: float
    job_uid: str
    job: str
    fence: Fence
    state: LeaseState
    bytes_per_s: int
