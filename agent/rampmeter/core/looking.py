"""Whether a save that is due may be asked for: somebody looks first whether it can be made at all. Pure.

Without a look nothing is asked. What forbids a save is looked at again and again: the save is late, not given up.
"""

import math

LOOK_AGAIN_S = 15.0
"""Also how long a look may take: storage that has not answered by then is in trouble itself."""


class LookFirst:
    """The look before one save after another. `enabled` False = every save is cleared at once."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self.cleared = not enabled
        self.again_at_s = -math.inf
        """When to look (again)."""

    def begins(self, now_s: float) -> None:
        """Somebody looks."""
        self.again_at_s = now_s + LOOK_AGAIN_S

    def begin_anew(self) -> None:
        """The save is over: the next one needs a look of its own."""
        self.cleared, self.again_at_s = not self._enabled, -math.inf
