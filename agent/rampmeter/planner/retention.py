"""How much storage the kept checkpoints take."""

from dataclasses import dataclass

_DAY_S = 86_400.0
_TB = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """What is kept. None or 0 = nothing of that kind.

    last        newest ones
    daily       one a day for the whole run
    hot, warm   newest ones on fast and on shared storage
    cold_every_s distance of the ones that are kept for good
    """

    last: int
    daily: bool
    hot: int
    warm: int
    cold_every_s: float | None

    @property
    def anything(self) -> bool:
        return bool(self.last or self.daily or self.hot or self.warm or self.cold_every_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One line of the account."""

    name: str
    num_checkpoints: int
    num_bytes: int


def kept(keep: Keep, *, num_bytes: int, interval_s: float, run_s: float) -> list[Kept]:
    """Everything that would be written first, then what is kept of it, kind by kind: never more than is written."""
    written = int(run_s / interval_s + 0.5)
    counts = {
        "all of the run": written,
        f"last {keep.last}": keep.last,
        "one a day": int(run_s / _DAY_S) if keep.daily else 0,
        f"{keep.hot} hot": keep.hot,
        f"{keep.warm} warm": keep.warm,
        "cold": int(run_s / keep.cold_every_s) if keep.cold_every_s else 0,
    }
    return [
        Kept(name=name, num_checkpoints=min(count, written), num_bytes=min(count, written) * num_bytes)
        for name, count in counts.items()
        if count
    ]


def stored_tb(lines: list[Kept]) -> float:
    """What stands on storage at the end of the run: all lines but the first."""
    return sum(line.num_bytes for line in lines[1:]) / _TB
