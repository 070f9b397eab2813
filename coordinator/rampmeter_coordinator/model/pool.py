"""What an operator says about one pool, and the times that follow from the lease length.

Values only. The relations between the times are what keeps the pool within capacity (docs/architecture.md, "Times"):
a safe rate is counted from last contact + 2 TTL - margin on, and usable by the agent from + 3 TTL on.
"""

from dataclasses import dataclass

from rampmeter.core.messages import MARGIN_S, Kind

HOLD_RENEWAL_S = 5.0
HOLD_SLOT_S = 25.0
HEARTBEAT_S = 15.0
START_WITHIN_S = 60.0
ANSWER_AT_ONCE_AFTER_S = HOLD_SLOT_S + 9.0
"""A job whose confirmed contact is older than this is answered at once, so that it can confirm."""

QUEUE_MEMORY_S = 90.0
"""A job that comes back within this keeps its place in the queue; after it, it waits no more."""

SILENT_SHARE = 0.9
"""What silent jobs may use of the budget: a job that died is silent for hours, and others must be able to start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """One shared storage target. `capacity_bytes_per_s` is what it sustains; `utilisation` (u) of it may be granted.

    read_capacity_bytes_per_s   for restores, beside the writes; None = as large as the write capacity
    shared_reads                restores take from the same budget as writes
    max_writers, max_streams    jobs that write at once; writers inside a job (told with the lease)
    max_tenant_bytes_per_s      the most that the jobs of one tenant may be granted in sum
    enforced_share              share of jobs that have to wait for a slot; 0 = shadow mode: everybody is granted at
                                once and the service only shows what it would have done
    max_stall_share             overhead budget: no interval may be so short that checkpoints cost training more
    base_price_gpu_s_per_byte   what a byte costs also where storage is idle: plans never follow a lower price
    check_every_s               how often the ledger checks all its invariants; None = never
    """

    name: str
    capacity_bytes_per_s: int
    read_capacity_bytes_per_s: int | None = None
    shared_reads: bool = False
    utilisation: float = 0.8
    ttl_s: float = 30.0
    first_ttl_s: float = 10.0
    safe_for_s: float = 4 * 3600.0
    max_writers: int | None = None
    max_streams: int | None = None
    max_tenant_bytes_per_s: int | None = None
    enforced_share: float = 1.0
    max_stall_share: float | None = None
    base_price_gpu_s_per_byte: float = 0.0
    max_jobs: int = 100_000
    check_every_s: float | None = None

    @property
    def budget_bytes_per_s(self) -> int:
        """u B: the most that may be granted in sum."""
        return int(self.capacity_bytes_per_s * self.utilisation)

    @property
    def read_budget_bytes_per_s(self) -> int:
        """The most that may be granted to restores where they have a budget of their own."""
        capacity = self.read_capacity_bytes_per_s or self.capacity_bytes_per_s
        return int(capacity * self.utilisation)

    def lane(self, kind: Kind) -> Kind:
        """Whose budget a slot of this kind takes from."""
        return Kind.WRITE if self.shared_reads else kind

    @property
    def is_bounded_by_sum_only(self) -> bool:
        """Nothing but the sum of all rates bounds who may write how fast."""
        return not self.shared_reads and self.max_writers is None and self.max_tenant_bytes_per_s is None

    @property
    def safe_after_s(self) -> float:
        """Agent: the safe rate is usable this long after the receipt of its last answer."""
        return 3.0 * self.ttl_s

    @property
    def safe_counted_after_s(self) -> float:
        """Coordinator: the safe rate counts this long after the last contact."""
        return 2.0 * self.ttl_s - MARGIN_S

    @property
    def grace_s(self) -> float:
        """How long after lost memory only holders are served: the longest lease that may be out there, and a margin."""
        return max(self.ttl_s, self.first_ttl_s) + MARGIN_S
