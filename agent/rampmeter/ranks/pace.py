"""How long a call of `step()` takes, from looks at a counter of calls. Pure."""

_LEAST_S = 0.25
"""Between two looks that are compared: short enough to follow training, long enough for many short steps."""


class Pace:
    """Of one rank. `step_s` is None before two looks could be compared."""

    def __init__(self, now_s: float) -> None:
        self.step_s: float | None = None
        self._looked = (now_s, 0)

    def look(self, now_s: float, num_calls: int) -> None:
        """So many calls were made until now. Steps that take longer than the looks lie apart are waited for."""
        looked_s, before = self._looked
        if now_s >= looked_s + _LEAST_S and num_calls > before:
            self.step_s = (now_s - looked_s) / (num_calls - before)
            self._looked = (now_s, num_calls)
