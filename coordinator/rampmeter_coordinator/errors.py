"""What can go wrong between the coordinator's parts, named by what the engine does about it.

RampmeterError
├── StoreUnavailable   keep the batch, answer 503, try again
├── Fenced             another coordinator serves this pool: stop
├── LostCommits        the store went back in time: load again, with grace
└── Refused            a request that gets a problem answer instead of an answer
"""

from rampmeter.core.errors import RampmeterError
from rampmeter_coordinator.model.commands import Refusal


class StoreUnavailable(RampmeterError):
    """The store did not say that the batch is kept; it may or may not be."""


class Fenced(RampmeterError):
    """The store holds a higher epoch: a newer coordinator has taken the pool."""


class LostCommits(RampmeterError):
    """The store no longer holds what it had promised to keep."""


class Refused(RampmeterError):
    """Carries the Refusal. `retry_after_s` is set where trying again later makes sense."""

    def __init__(self, refusal: Refusal, *, retry_after_s: int | None = None) -> None:
        super().__init__(refusal.detail)
        self.refusal = refusal
        self.retry_after_s = retry_after_s
