"""What all jobs of a pool ask of its storage, and how much of that counts for the price. Pure: arrays in, numbers out.

T_i(price) = max(floor_i, sqrt(2 M_i (C'_i + price b_i / n_i))), the vectorised twin of `rampmeter.core.interval`; a
test keeps them equal.

M, GPUs and wishes are words: nobody can measure them, and one absurd word must not move everybody's interval. A job of
which nothing else is known counts with no more than others ask, until its first committed save. Then its bytes and
times are known, and of its words those are doubted that stand alone: far below the same figure of all others, and of
too few jobs to be a kind of its own. In their place stands what is usual, for the price and nowhere else: the plan, the
bid and the place in the queue of the job itself follow what it says.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from rampmeter.core.interval import WRITE_FLOOR, Load

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

Figures = tuple[float, float, float, float, float, float]
NUM_FIGURES = 6
"""Of a load: the fields of `Asked` in their order, but for the last one."""

FAR_BELOW = 10.0
"""A word that is so many times below that of the next job is doubted, if ..."""

ALONE_SHARE = 0.02
"""... at most so many of the jobs, but always one, say such a thing. More are a kind of job: spot beside reserved."""

FEWEST = 3
"""Words to compare: with two there is one against another. Where fewer jobs have saved, newcomers are heard, too."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What jobs ask of a storage, one column a figure, one row a job that asks for anything.

    bytes_per_gpu           b / n
    twice_mtbf_s            2 M
    own_cost_s, floor_s     as in Load
    cost_s                  C, whatever the job wishes
    believed_bytes_per_s    what the job may count with at least, however little the others ask: infinity once it has
                            committed a save under these figures
    """

    num_bytes: Floats
    bytes_per_gpu: Floats
    twice_mtbf_s: Floats
    own_cost_s: Floats
    floor_s: Floats
    cost_s: Floats
    believed_bytes_per_s: Floats

    @classmethod
    def of(cls, loads: Iterable[Load]) -> "Asked":
        """Jobs that are all believed."""
        rows = [(*figures(load), math.inf) for load in loads if load.num_bytes]
        return cls(*np.array(rows, dtype=np.float64).reshape(-1, NUM_FIGURES + 1).T)

    def each(self, price: float) -> Floats:
        """Bytes per second that each job asks for at a price."""
        cost_s = self.own_cost_s + price * self.bytes_per_gpu
        found: Floats = self.num_bytes / np.maximum(self.floor_s, np.sqrt(self.twice_mtbf_s * cost_s))
        return found

    def demand(self, price: float, newcomer_bytes_per_s: float = 0.0) -> float:
        """Bytes per second that count at a price; of a job on its word alone at most the lower median of all, or
        `newcomer_bytes_per_s` where that is more.
        """
        each = self.each(price)
        if np.isinf(self.believed_bytes_per_s).all():
            return float(each.sum())
        middle = (each.size - 1) // 2
        usual = max(newcomer_bytes_per_s, float(np.partition(each, middle)[middle]))
        return float(np.minimum(each, np.maximum(self.believed_bytes_per_s, usual)).sum())

    def at_most(self, bytes_per_s: float) -> "Asked":
        """The same where no write is faster than this, whatever a job says of its write time: T >= h b / B.

        Never below a byte per second: on a storage that takes nothing jobs still ask, and no price fits.
        """
        fastest_s = self.num_bytes / max(1.0, bytes_per_s)
        return replace(self, floor_s=np.maximum(self.floor_s, WRITE_FLOOR * fastest_s))

    def doubting(self) -> "Asked":
        """The same with what is usual in place of doubted words: the GPU-time between failures, the bytes per GPU, and
        the C that was measured in place of a wish. Nobody asks for more by it.

        The first two are also looked at together, as M b: more GPUs than there are would excuse an M that is as many
        times too short, and a little of both would be a hundred times off.
        """
        saved = np.isinf(self.believed_bytes_per_s)
        heard = saved if np.count_nonzero(saved) >= FEWEST else np.ones_like(saved)
        if heard.size < FEWEST or not saved.any():
            return self
        usual_bytes, many_gpus = _doubted(self.bytes_per_gpu, saved, heard)
        num_gpus = self.num_bytes / self.bytes_per_gpu
        usual_gpu_s, short_mtbf = _doubted(self.twice_mtbf_s * num_gpus, saved, heard)
        _, both = _doubted(self.twice_mtbf_s * self.num_bytes, saved, heard)
        _, short_wish = _doubted(self.own_cost_s, saved, heard)
        often = many_gpus | short_mtbf | both
        if not (often | short_wish).any():
            return self
        bytes_per_gpu = np.where(
            many_gpus | both, np.maximum(self.bytes_per_gpu, usual_bytes), self.bytes_per_gpu
        )
        usual_s = usual_gpu_s * bytes_per_gpu / self.num_bytes
        return replace(
            self,
            bytes_per_gpu=bytes_per_gpu,
            twice_mtbf_s=np.where(often, np.maximum(self.twice_mtbf_s, usual_s), self.twice_mtbf_s),
            own_cost_s=np.where(often | short_wish, self.cost_s, self.own_cost_s),
        )


def _doubted(words: Floats, saved: Bools, heard: Bools) -> tuple[float, Bools]:
    """What is usual, the median of those `heard`, and whose words stand alone among them. Only who saved is doubted:
    all others count for little anyhow.
    """
    others = words[heard]
    alone, middle = max(1, int(ALONE_SHARE * others.size)), others.size // 2
    ordered = np.partition(others, (alone, middle))
    return float(ordered[middle]), saved & (FAR_BELOW * words < ordered[alone])


def figures(load: Load) -> Figures:
    """What the price needs to know of a load."""
    return (
        float(load.num_bytes),
        load.num_bytes / load.num_gpus,
        2.0 * load.mtbf_s,
        load.own_cost_s,
        load.floor_s,
        load.cost_s,
    )
