"""Whether a rank calls `step()` less often than rank 0: then the ranks never meet in a call, nothing is saved. Pure.

Ranks that train together are a call or two apart, whatever they wait for. Who is behind by all that rank 0 calls in
many seconds does not take part as it should, and no other sign of that would reach the log.
"""

from collections.abc import Mapping

LONGEST_LAG_S = 20.0
FEWEST_CALLS = 10


def lag(num_calls: Mapping[int, int], step_s: float | None) -> str:
    """Which rank is too far behind rank 0, and what to do, in words; empty = none.

    `num_calls` of `step()` by rank; `step_s` seconds are between two of rank 0, None = not known yet.
    """
    if step_s is None or not num_calls:
        return ""
    rank = min(num_calls, key=lambda one: (num_calls[one], one))
    ours, theirs = num_calls.get(0, 0), num_calls[rank]
    if (ours - theirs) * step_s < LONGEST_LAG_S or ours - theirs < FEWEST_CALLS:
        return ""
    return (
        f"rank {rank} has called step() {theirs} times and rank 0 {ours} times: "
        "until all ranks call it equally often nothing is saved"
    )
