"""Where what stands in the state dict that goes into a checkpoint.

The parts of the user's state stand under their own keys, ours under one that the user cannot have:

    rampmeter.step                  the step
    rampmeter.rng.rank0             the random state of each rank, as bytes
    rampmeter.frozen.<key>          parts that torch would not give back as they were, as bytes
    rampmeter.own.rank0.<key>       each rank's own copy of parts that belong to a rank, as bytes; only of jobs of
                                    several ranks: a single process stores them as all others
"""

RESERVED = "rampmeter"
FROZEN = "frozen"
RNG = "rng"
OWN = "own"

LEAD = "lead"
"""Paths of tensors of which the copy of the lowest rank counts. On the way to the planner only, never stored."""


def rank_key(rank: int) -> str:
    return f"rank{rank}"


def rank_of(key: str) -> int:
    """The rank that `rank_key` made this of."""
    return int(key.removeprefix("rank"))
