"""A lane in which everybody has all that it could use: whoever comes or goes then moves nobody else.

That is the common case of a pool that is not full, and it is decided in constant time, however many write. Says nothing
of a lane where the wishes do not fit together: `rates` fills that one in order. Knows sums only, no jobs.
"""


class Level:
    """What all holders of one lane could use, armed ones too: together never more than `rest_bytes_per_s`."""

    __slots__ = ("_claims", "_free_bytes_per_s")

    def __init__(self, rest_bytes_per_s: int) -> None:
        self._claims: dict[str, int] = {}
        self._free_bytes_per_s = rest_bytes_per_s

    def fits(self, claim_bytes_per_s: int) -> bool:
        """Whether one more could have all that it could use."""
        return claim_bytes_per_s <= self._free_bytes_per_s

    def add(self, uid: str, claim_bytes_per_s: int) -> None:
        """One more, who fits."""
        self._claims[uid] = claim_bytes_per_s
        self._free_bytes_per_s -= claim_bytes_per_s

    def remove(self, uid: str) -> None:
        """One less."""
        self._free_bytes_per_s += self._claims.pop(uid)

    def claim_of(self, uid: str) -> int | None:
        """What this holder could use, and has or is given as soon as it is ready; None for any other job."""
        return self._claims.get(uid)
