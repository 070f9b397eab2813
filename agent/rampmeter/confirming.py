"""When an answer of the coordinator counts as applied: once every writer of the job follows it. Pure.

Until then the rate from before may still be in use on some rank, and the coordinator must go on counting it.
"""

from rampmeter.core.pacer import Action

LOOK_AGAIN_S = 0.02
"""Between looks whether all ranks follow a new rate: they hear it within half a second."""

_RENEWALS = frozenset({Action.RENEW, Action.RENEW_READ})

_WITHIN_S = 1.0
"""A renewal waits for so long. A rank that needs longer is ill, and the save will fail or the lease end."""


class Confirming:
    """Of the newest answer. A newer one takes its place: who follows that follows this, too."""

    def __init__(self) -> None:
        self._open: tuple[int, int] | None = None  # seq, epoch of the fence
        self._answered_s = 0.0

    @property
    def is_open(self) -> bool:
        """An answer is not confirmed yet."""
        return self._open is not None

    def answered(self, seq: int, fence_epoch: int, now_s: float) -> None:
        """This answer was applied by this process; 0 = it had no fence."""
        self._open, self._answered_s = (seq, fence_epoch), now_s

    def take(self) -> tuple[int, int]:
        """All writers follow: what to confirm, once."""
        assert self._open is not None
        taken, self._open = self._open, None
        return taken

    def delays(self, action: Action, now_s: float) -> bool:
        """Whether to say it later: a renewal may be held for seconds, and should confirm the answer before it."""
        return action in _RENEWALS and self.is_open and now_s < self._answered_s + _WITHIN_S
