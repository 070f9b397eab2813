"""What every job of a pool asks of the storage, kept in a NumPy table: one row a job, written when its figures change.

So that a question for the price is a copy of a few arrays and never a walk over all jobs. Kept in 4 bytes a figure: the
error of 6e-8 is a hundredth of what a price may be off. Decides nothing.
"""

import math

import numpy as np
import numpy.typing as npt

from rampmeter.core.interval import Load
from rampmeter_coordinator.model.asked import NUM_FIGURES, Asked, Figures, figures

_FIRST_ROWS = 64
_GROWTH = 1.25


class Columns:
    """A table that grows. A row is a place for one job until it is freed."""

    def __init__(self) -> None:
        self._table = np.zeros((NUM_FIGURES + 1, _FIRST_ROWS), dtype=np.float32)
        self._asks = np.zeros(_FIRST_ROWS, dtype=np.bool_)
        self._uids: list[str] = []
        self._free: list[int] = []

    def new_row(self, uid: str) -> int:
        """A row for this job; it asks for nothing yet."""
        if self._free:
            row = self._free.pop()
            self._uids[row] = uid
            return row
        row = len(self._uids)
        if row == self._asks.size:
            self._grow(int((_GROWTH - 1.0) * row))
        self._uids.append(uid)
        return row

    def free(self, row: int) -> None:
        """Its job is forgotten."""
        self._asks[row] = False
        self._free.append(row)

    def put(self, row: int, load: Load) -> None:
        """The job asks for this from now on."""
        self._table[:NUM_FIGURES, row] = figures(load)
        self._asks[row] = load.num_bytes > 0

    def demand(self, row: int, price: float) -> float:
        """Bytes per second that the job asks for, or asked for, at a price."""
        num_bytes, bytes_per_gpu, twice_mtbf_s, own_cost_s, floor_s, _ = self._read(row)
        return num_bytes / max(floor_s, math.sqrt(twice_mtbf_s * (own_cost_s + price * bytes_per_gpu)))

    def believe(self, row: int, bytes_per_s: float) -> None:
        """The job counts with so much, if it asks for it, whatever the others ask."""
        self._table[NUM_FIGURES, row] = bytes_per_s

    def believed(self, row: int) -> float:
        """As `believe` has it."""
        return float(self._table[NUM_FIGURES, row])

    def asks(self, row: int) -> bool:
        """Whether the job asks for anything now."""
        return bool(self._asks[row])

    def silence(self, row: int) -> None:
        """The job asks for nothing until it is `put` again."""
        self._asks[row] = False

    def asked(self) -> tuple[Asked, npt.NDArray[np.intp], tuple[str, ...]]:
        """A copy of what all ask, in which rows that stands, and whose each row is."""
        rows = np.flatnonzero(self._asks)
        return Asked(*self._table[:, rows].astype(np.float64)), rows, tuple(self._uids)

    def _read(self, row: int) -> Figures:
        return tuple(self._table[:NUM_FIGURES, row].tolist())

    def _grow(self, num_rows: int) -> None:
        self._table = np.concatenate(
            [self._table, np.zeros((NUM_FIGURES + 1, num_rows), dtype=np.float32)], axis=1
        )
        self._asks = np.concatenate([self._asks, np.zeros(num_rows, dtype=np.bool_)])
