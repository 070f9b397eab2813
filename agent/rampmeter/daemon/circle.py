"""The process group of the writer processes of a job, inside one of them.

Made when the first order names it, by the writers alone: training makes no group for them and waits for none. They
find each other in the store that rank 0's training holds, and need nobody's training once they have: gloo talks from
process to process. A group in which something broke is left at once, which ends whatever others still wait for in it.
"""

from datetime import timedelta

import torch.distributed as dist
from torch.distributed import DistError, PrefixStore, Store, TCPStore  # type: ignore[attr-defined]  # torch's own re-export

from rampmeter.core.clock import Clock
from rampmeter.core.errors import CommitError, LeaseLost
from rampmeter.core.messages import FailReason
from rampmeter.daemon.tidings import LOOK_S
from rampmeter.ranks.group import COLLECTIVE_LIMIT_S
from rampmeter.throttle import Throttle
from rampmeter.together import Party

_HERE = "here"
_RANKS_AT_FULL_PACE = 100
"""Above so many writers each looks the less often, so that all looks together stay as many."""


class Circle:
    """One per writer process. Used by the thread that writes."""

    def __init__(self, clock: Clock) -> None:
        self.number = 0
        """Of the group that it is in; 0 = none."""
        self._clock = clock

    def join(self, party: Party, throttle: Throttle) -> None:
        """Be in the party's group. LeaseLost if the save is aborted before all are there."""
        assert party.group is not None
        if party.group == self.number:
            return
        self.leave()
        try:
            self._make(party, party.group, throttle)
        except DistError as error:
            first_line = str(error).partition("\n")[0]
            why = f"the writers of the ranks did not find each other: {first_line}"
            raise CommitError(why, reason=FailReason.RANK_FAILED) from error

    def _make(self, party: Party, group: int, throttle: Throttle) -> None:
        limit = timedelta(seconds=COLLECTIVE_LIMIT_S)
        found = TCPStore(party.host, party.port, is_master=False, wait_for_workers=False, timeout=limit)
        store = PrefixStore(f"writers/{group}", found)
        self._meet(store, party.num_ranks, throttle)
        dist.init_process_group(
            "gloo", store=store, rank=party.rank, world_size=party.num_ranks, timeout=limit
        )
        self.number = group

    def _meet(self, store: Store, num_ranks: int, throttle: Throttle) -> None:
        """Return once all are there. gloo would wait for them, too, and hear of no abort meanwhile."""
        look_s = LOOK_S * max(1.0, num_ranks / _RANKS_AT_FULL_PACE)
        store.add(_HERE, 1)
        while store.add(_HERE, 0) < num_ranks:
            if throttle.abort_reason is not None:
                raise LeaseLost(throttle.abort_reason)
            self._clock.sleep(look_s)

    def leave(self) -> None:
        """Be in none."""
        self.number = 0
        if dist.is_initialized():
            dist.destroy_process_group()
