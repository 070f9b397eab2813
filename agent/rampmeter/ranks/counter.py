"""Counts the calls of `step()` on one rank, and notices the one that was agreed on: two integers are compared, no lock.

Two threads meet here: training counts, the agent's thread arms. Each writes its own integer first and reads the other's
afterwards, so at least one of them sees the other: never does a call slip through of which was said that it is ahead.
If both do, the rank has answered that it passed, and its training thread finds nothing to wait for.
"""

_NEVER = -1
_NUM_KEPT = 256
"""Steps of so many calls are remembered, to compare them with what other ranks were told."""


class CallCounter:
    """One per rank. `called` is for the training thread only, `arm` and `disarm` for the agent's."""

    __slots__ = ("_at_call", "_steps", "num_calls")

    def __init__(self) -> None:
        self.num_calls = 0
        self._at_call = _NEVER
        self._steps: list[int | None] = [None] * _NUM_KEPT

    def called(self, step: int | None) -> bool:
        """One call more, in which the caller said `step`. Whether it is the one that was armed."""
        calls = self.num_calls + 1
        self._steps[calls % _NUM_KEPT] = step
        self.num_calls = calls  # before the look at the other integer: see above
        return calls == self._at_call

    def arm(self, at_call: int) -> bool:
        """Let `called` notice that call. Whether it is still ahead; if not, `disarm`."""
        self._at_call = at_call  # before the look at the other integer: see above
        return self.num_calls < at_call

    def disarm(self) -> None:
        """No call is agreed on any more."""
        self._at_call = _NEVER

    def step_at(self, call: int) -> int | None:
        """What was said in that call; None if it has not come yet, or is forgotten."""
        num_calls = self.num_calls
        if not max(0, num_calls - _NUM_KEPT + 2) < call <= num_calls:
            return None
        return self._steps[call % _NUM_KEPT]
