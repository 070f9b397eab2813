"""The ranks of a job doing one piece of work each, and going on only when all have done theirs.

Every piece of work runs on the caller's thread; a thread beside it says twice a second whether it still runs. So a
collective never waits longer than that for a rank that is alive, whatever the time-out of the group and however long a
slow storage takes, and the failure of one rank is the failure of all, with the same error. What a rider of the work has
to say to the other ranks goes along. Decides nothing about what is done. All ranks must make the same calls in the same
order.
"""

import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist

from rampmeter.core.errors import RestoreError
from rampmeter.ranks.rider import Rider

_TICK_S = 0.5
_RIDDEN_TICK_S = 0.25
"""Where somebody rides along: what is said reaches all within this, and is known to be followed within twice that."""

_LAST_BEATS_S = 1.0

T = TypeVar("T")


class Peers:
    """All ranks of `group`, seen from this one; None = a process that is alone.

    `who_is_gone` is asked when they have lost each other, and may take a moment: which rank is heard no more, in words.
    """

    def __init__(
        self, group: dist.ProcessGroup | None = None, who_is_gone: Callable[[], str] = lambda: ""
    ) -> None:
        self._group = group
        self._who_is_gone = who_is_gone
        self.rank = 0 if group is None else dist.get_rank(group)
        self.world_size = 1 if group is None else dist.get_world_size(group)
        self._round: _Round | None = None

    @property
    def has_failed(self) -> bool:
        """Whether another rank has failed in the work that all are doing: to finish it has no use any more."""
        return self._round is not None and self._round.has_failed

    def agree(self, work: Callable[[], T], rider: Rider | None = None) -> T:
        """What `work` gives on this rank, when it has succeeded on all of them.

        If it failed on some, the error of the lowest of these is raised on every rank. RestoreError if the ranks lost
        each other. `rider` is on all ranks or on none.
        """
        if self._group is None:
            return work()
        self._round = now = _Round(self._group, self.rank, rider, self._who_is_gone)
        try:
            now.begin()
            result = work()
        except Exception as error:
            now.ends(error)
            now.raise_failure(error)
            raise
        except BaseException:
            now.ends(RestoreError("it was interrupted"))
            now.wait(_LAST_BEATS_S)  # until no rank works on: what they share is given up when this is raised
            raise
        now.ends(None)
        now.raise_failure(None)
        return result

    def from_first(self, work: Callable[[], T]) -> T:
        """What `work` gives on rank 0, which alone does it; or its error."""
        told = self.agree(lambda: work() if self.rank == 0 else None)
        if self._group is None:
            return cast(T, told)
        box: list[Any] = [told]
        with _together(self._who_is_gone):
            dist.broadcast_object_list(box, group=self._group, group_src=0)
        return cast(T, box[0])

    def gather(self, value: bytes) -> list[bytes]:
        """The values of all ranks, by rank."""
        if self._group is None:
            return [value]
        values: list[Any] = [None] * self.world_size
        with _together(self._who_is_gone):
            dist.all_gather_object(values, value, group=self._group)
        return values


@contextmanager
def _together(who_is_gone: Callable[[], str]) -> Iterator[None]:
    """Around collectives: when a rank is gone they fail with what the network says, which names none."""
    try:
        yield
    except RuntimeError as error:
        what = str(error).split(". ")[0]  # gloo adds advice
        who = who_is_gone()
        told = f"{who} ({what})" if who else what
        raise RestoreError(f"the ranks of this job lost each other: {told}") from error


class _Round:
    """One piece of work of all ranks. Its thread runs all collectives, also when the work was left by Ctrl-C."""

    def __init__(
        self, group: dist.ProcessGroup, rank: int, rider: Rider | None, who_is_gone: Callable[[], str]
    ) -> None:
        self._group = group
        self._rank = rank
        self._rider = rider
        self._who_is_gone = who_is_gone
        self._tick_s = 0.0 if rider is not None else _TICK_S
        self._done = threading.Event()
        self._own: Exception | None = None
        self._failure: Exception | None = None
        self.has_failed = False
        self._thread = threading.Thread(target=self._run, name="rampmeter-peers", daemon=True)

    def begin(self) -> None:
        """Tell the others from now on that this rank works; to be followed by `ends`, whatever interrupts it."""
        self._thread.start()

    def ends(self, error: Exception | None) -> None:
        """The work of this rank is over."""
        self._own = error
        self._done.set()

    def wait(self, limit_s: float) -> None:
        """For the others, but not for ever."""
        if self._thread.ident is not None:  # an interrupt may come before it has begun
            self._thread.join(limit_s)

    def raise_failure(self, own: Exception | None) -> None:
        """Wait for the others; raise what all raise, if anything."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure from own

    def _run(self) -> None:
        try:
            with _together(self._lost):
                while not self._is_over():
                    pass
                if self.has_failed:
                    self._failure = self._lowest()
        except Exception as error:
            self._failure = error
            self._note_failed()

    def _lost(self) -> str:
        """Nothing is read any more while it is found out who is gone."""
        self._note_failed()
        return self._who_is_gone()

    def _note_failed(self) -> None:
        self.has_failed = True
        if self._rider is not None:
            self._rider.ends()

    def _is_over(self) -> bool:
        """Whether all ranks have done their work; asks for it at once when this one has, else in a while."""
        self._done.wait(self._tick_s)
        is_done = self._done.is_set()
        told = [] if self._rider is None else self._rider.says()
        sums = torch.tensor([not is_done, self._why() is not None, *told], dtype=torch.int64, device="cpu")
        dist.all_reduce(sums, group=self._group)
        num_at_work, num_failed, *heard = sums.tolist()
        if self._rider is not None:
            self._rider.hears(heard)
            self._tick_s = _RIDDEN_TICK_S
        if num_failed:
            self._note_failed()
        return bool(num_at_work == 0)

    def _why(self) -> Exception | None:
        """Why it fails on this rank, as far as is known."""
        return self._own or (None if self._rider is None else self._rider.failure)

    def _lowest(self) -> Exception:
        why = self._why()
        mine = None if why is None else _portable(why, self._rank)
        failures: list[Any] = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(failures, mine, group=self._group)
        return cast(Exception, pickle.loads(next(item for item in failures if item is not None)))  # noqa: S301 - ours


def _portable(error: Exception, rank: int) -> bytes:
    """As bytes from which every rank makes the same error; one of ours says which rank met it."""
    if isinstance(error, RestoreError):
        error = type(error)(f"{error} (rank {rank})")
    try:
        content = pickle.dumps(error)
        pickle.loads(content)  # noqa: S301 - the bytes of the line above
    except Exception:
        return pickle.dumps(RestoreError(f"{type(error).__name__}: {error} (rank {rank})"))
    return content
