"""What a rank's flush asks of the other ranks of its job, as a protocol; and the answer of a job of one.

Called by the thread that flushes, in this order. Decides nothing about rates.
"""

from typing import Protocol


class Course(Protocol):
    """One save, as one rank's flush goes through it.

    All but `failed` raise RankFailed as soon as any rank has failed.
    """

    def begin(self) -> None:
        """Return once all ranks hold a snapshot of this step."""

    def ready(self, planned_bytes: int) -> None:
        """This rank is going to write so many bytes."""

    def done(self) -> None:
        """All bytes of this rank are durable; return once those of all ranks are."""

    def failed(self, error: BaseException) -> None:
        """This rank's flush has failed: the others hear it at once, and stop."""


class Alone:
    """Of a job of one process: there is nobody to wait for."""

    def begin(self) -> None:
        """Nobody else needs a snapshot."""

    def ready(self, planned_bytes: int) -> None:
        """Nobody else wants to know."""

    def done(self) -> None:
        """Nobody else has bytes."""

    def failed(self, error: BaseException) -> None:
        """Nobody else is to stop."""
