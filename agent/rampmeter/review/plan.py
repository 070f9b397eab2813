"""A checkpoint plan as values: what the text of a plan says, and nothing that it does not say.

None always means "the plan is silent": a question to its author, never a flaw. What a plan says not to have is
False, or an empty tuple.
"""

from dataclasses import dataclass
from enum import StrEnum


class Optimizer(StrEnum):
    """What the optimizer keeps per parameter: two moments, one, or none."""

    ADAM = "adam"
    SGD_MOMENTUM = "sgd_momentum"
    SGD = "sgd"


class Precision(StrEnum):
    """What weights are kept in. Mixed precision trains on 2-byte weights beside 4-byte master weights."""

    BF16_MIXED = "bf16_mixed"
    FP16_MIXED = "fp16_mixed"
    FP32 = "fp32"
    BF16 = "bf16"


class Part(StrEnum):
    """What a checkpoint may hold."""

    WEIGHTS = "weights"
    MASTER_WEIGHTS = "master_weights"
    OPTIMIZER = "optimizer"
    STEP = "step"
    SCHEDULER = "scheduler"
    GRAD_SCALER = "grad_scaler"
    RNG = "rng"


class Mode(StrEnum):
    """Whether training stops for the write, or for the copy to host memory only."""

    SYNCHRONOUS = "synchronous"
    ASYNCHRONOUS = "asynchronous"


class WhenBusy(StrEnum):
    """What happens to a save that is due while the one before is still being written."""

    SKIP = "skip"
    QUEUE = "queue"


class Phase(StrEnum):
    """What sets the moment of the first save: the start of the job, chance, or somebody who sees all jobs."""

    START = "start"
    RANDOM = "random"
    COORDINATED = "coordinated"


class CommitStep(StrEnum):
    """What happens at a commit."""

    SHARDS = "shards"
    ALL_RANKS_DONE = "all_ranks_done"
    MANIFEST = "manifest"
    POINTER = "pointer"


class PointerUpdate(StrEnum):
    """How the pointer is replaced: at once by a rename, or by writing into the file."""

    RENAME = "rename"
    IN_PLACE = "in_place"


class Directory(StrEnum):
    """Where a checkpoint is written: always somewhere new, or over an older one."""

    NEW = "new"
    REUSED = "reused"


class Resume(StrEnum):
    """Where the data loader goes on after a restart."""

    EXACT = "exact"
    EPOCH_START = "epoch_start"


class Layout(StrEnum):
    """What a checkpoint can be restored on: the number of ranks that wrote it, or any."""

    SAME = "same"
    ANY = "any"


class Keep(StrEnum):
    """Whether anything is ever deleted."""

    ALL = "all"
    SOME = "some"


class Alert(StrEnum):
    """What somebody is told of."""

    MISSED = "missed"
    FAILED = "failed"
    WRITE_TIME = "write_time"
    AGE = "age"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The training run. `mtbf_s` is that of the whole job; `mtbf_measured` says whether somebody looked."""

    gpus: int
    length_s: float
    name: str | None = None
    nodes: int | None = None
    mtbf_s: float | None = None
    mtbf_measured: bool | None = None
    restart_s: float | None = None
    parallelism: str | None = None
    price_per_gpu_hour: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What a checkpoint holds, and how large the plan takes it to be."""

    parameters: int | None = None
    precision: Precision | None = None
    optimizer: Optimizer | None = None
    saved: tuple[Part, ...] | None = None
    planned_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When it is written. `stall_s`: how long training stands still for one checkpoint."""

    every_s: float
    mode: Mode | None = None
    stall_s: float | None = None
    snapshot_is_copy: bool | None = None
    when_busy: WhenBusy | None = None
    phase: Phase | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Where it is written. `num_servers` 1 = one server whose loss stops everything."""

    name: str | None = None
    write_bytes_per_s: int | None = None
    num_servers: int | None = None
    sharded: bool | None = None
    num_other_jobs: int | None = None
    space_bytes: int | None = None
    price_per_tb_month: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What makes it real: `order` lists all that happens, first to last."""

    order: tuple[CommitStep, ...] | None = None
    pointer_update: PointerUpdate | None = None
    directory: Directory | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Where the data loader goes on, and whether a test proves it."""

    resume: Resume | None = None
    epoch_s: float | None = None
    tested: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """What a restart needs."""

    layout: Layout | None = None
    num_spare_nodes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What stays: the last `keep_last`, one per `one_per_s`, and milestones."""

    keep: Keep | None = None
    keep_last: int | None = None
    one_per_s: float | None = None
    milestones: bool | None = None
    deletes_only_after_verified: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """How anybody knows that a checkpoint can be loaded."""

    checksums: bool | None = None
    checked_on_load: bool | None = None
    finite_check: bool | None = None
    restore_drills: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitoring:
    """Who is told of what."""

    alerts: tuple[Alert, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPlan:
    """All of it, section by section as in the file."""

    run: Run
    size: Size
    schedule: Schedule
    storage: Storage
    commit: Commit
    data: Data
    restore: Restore
    retention: Retention
    validation: Validation
    monitoring: Monitoring
