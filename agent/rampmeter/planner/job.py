"""The job that is planned: the figures of the formulas, as given or followed from what was given."""

from dataclasses import dataclass

from rampmeter.core.interval import WRITE_FLOOR, Load, cost
from rampmeter.core.sharing import SharingJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One training run.

    stall_s         training blocked by a checkpoint, without eps; of a synchronous job the whole write
    write_s         from snapshot to durable, None = unknown; for the checks, and counted as loss if `count_write`
    restart_s       from a failure until training goes on, without waiting and without failed attempts
    wait_s          for new capacity after a failure, before the restart can begin
    failed_share    of all recoveries; such a one is tried again from the start
    num_bytes       of a checkpoint, None = unknown
    max_bytes_per_s at which the job can write, None = unknown
    base_price      of a byte, in GPU-seconds
    every_s         the interval that is to be judged; None = look for the best
    """

    stall_s: float
    synchronous: bool
    write_s: float | None
    count_write: bool
    eps: float
    mtbf_s: float
    restart_s: float
    wait_s: float
    failed_share: float
    num_gpus: int
    num_bytes: int | None
    max_bytes_per_s: int | None
    base_price: float
    every_s: float | None

    @property
    def cost_s(self) -> float:
        """C: what a checkpoint costs training."""
        if self.synchronous:
            return self.stall_s
        return cost(self.stall_s, self.write_s or 0.0, self.eps, synchronous=False)

    @property
    def down_s(self) -> float:
        """R of the formulas: what a failure costs beside redone work, with all attempts that it takes on average."""
        return (self.restart_s + self.wait_s) / (1.0 - self.failed_share)

    @property
    def counted_write_s(self) -> float:
        """W of the waste. A synchronous job trains nothing while it writes: there is nothing to lose meanwhile."""
        return (self.write_s or 0.0) if self.count_write and not self.synchronous else 0.0

    @property
    def least_interval_s(self) -> float:
        """Below it a background write would not have ended, with some room, when the next one is due."""
        return WRITE_FLOOR * self.load.write_s

    @property
    def load(self) -> Load:
        """What it asks of a storage. A synchronous job cannot overtake its own write: no floor."""
        return Load(
            num_bytes=self.num_bytes or 0,
            num_gpus=self.num_gpus,
            cost_s=self.cost_s,
            mtbf_s=self.mtbf_s,
            write_s=0.0 if self.synchronous else self.write_s or 0.0,
        )

    @property
    def among_others(self) -> SharingJob:
        """The same job without coordination."""
        return SharingJob(
            load=self.load,
            stall_s=self.stall_s,
            eps=self.eps,
            synchronous=self.synchronous,
            restart_s=self.down_s,
            max_bytes_per_s=self.max_bytes_per_s,
        )
