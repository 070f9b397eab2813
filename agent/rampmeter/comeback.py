"""A restore as a running job makes it: under whose slot, among which ranks, and what it means when its right is gone.

Decides neither which checkpoint is loaded (`restore`) nor how fast it is read (`reading`); keeps nothing.
"""

from functools import partial

from rampmeter.core.clock import Clock
from rampmeter.core.errors import LeaseLost, RestoreError
from rampmeter.layout import Root
from rampmeter.leaving import EXIT_PREEMPTED
from rampmeter.ranks.crew import Crew
from rampmeter.reading.counter import ReadCounter
from rampmeter.reading.rankpace import rank_slot
from rampmeter.reading.slot import Slot, read_slot, unpaced
from rampmeter.reading.turns import LEAVING
from rampmeter.restore import RestoredCheckpoint, restore
from rampmeter.state import State


def restore_in_turn(
    root: Root,
    state: State,
    *,
    step: int | None,
    fresh: bool,
    reader: ReadCounter | None,
    crew: Crew | None,
    clock: Clock,
) -> RestoredCheckpoint | None:
    """As `restore`, under a read slot that `reader` asks for (None = nobody is asked), and by all ranks of `crew`.

    Raises SystemExit(75) if the end of the job is announced meanwhile.
    """
    load = partial(restore, root, state, step=step, fresh=fresh, slot=_slot(reader, crew, clock))
    try:
        if crew is None:
            return load()
        with crew.group_of_its_own() as group:
            return load(group=group, who_is_gone=crew.who_is_gone)
    except LeaseLost as error:
        if str(error) == LEAVING:
            raise SystemExit(EXIT_PREEMPTED) from error
        raise RestoreError(
            f"nothing is loaded: a newer attempt of this job has claimed {root.path}, and this one ends"
        ) from error


def _slot(reader: ReadCounter | None, crew: Crew | None, clock: Clock) -> Slot:
    if crew is not None:
        return partial(rank_slot, reader, crew.rank.number, clock)
    return unpaced if reader is None else partial(read_slot, reader)
