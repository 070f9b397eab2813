"""What may go along with the beats of a piece of work that all ranks do, as its protocol: see `peers`."""

from typing import Protocol


class Rider(Protocol):
    """One per rank, on all ranks or on none. Called from the thread of the beats; must be quick, and wait for nobody.

    Nobody enters a beat before `hears` of the one before has returned: whoever has come out of a beat knows that all
    ranks follow what was said in the one before it.
    """

    def says(self) -> list[int]:
        """What this rank puts into the beat that begins: as many numbers on all ranks, each time."""
        ...

    def hears(self, sums: list[int]) -> None:
        """The sums over all ranks of what they said."""
        ...

    @property
    def failure(self) -> Exception | None:
        """Why the work is to fail on all ranks, although this one's own may go well; it stands once it is there."""
        ...

    def ends(self) -> None:
        """The work fails on some rank, or the ranks lost each other: this one's has no use any more."""
        ...
