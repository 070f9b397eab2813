"""What the learned capacity promises, in full: `python tests/soak/capacity.py`. Exits with 1 where it is not kept.

A storage that slows down to two fifths and recovers, and a writer that hangs: one line for each number of writers, with
the worst of ten seeds. Takes half an hour on one core: `--writers` and `--seeds` do less.
"""

import argparse
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from rampmeter_coordinator.sim.degrading import Degrading
from rampmeter_coordinator.sim.hanging import Hanging

WIDTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A figure of a result, and what it must not pass; `least`: it must not fall below."""

    name: str
    figure: Callable[[Any], float]
    bound: float
    least: bool = False

    def worst(self, results: Iterable[Any]) -> float:
        """Of all seeds."""
        figures = map(self.figure, results)
        return min(figures) if self.least else max(figures)

    def is_kept(self, figure: float) -> bool:
        return figure >= self.bound if self.least else figure <= self.bound


DEGRADING = (
    Promise(name="new level, s", figure=lambda result: result.level_s, bound=10.0),
    Promise(name="back at 90 %, s", figure=lambda result: result.back_s, bound=90.0),
    Promise(name="granted / true", figure=lambda result: result.mean_over, bound=1.15),
    Promise(name="least cap / true", figure=lambda result: result.least_cap, bound=0.8, least=True),
)
HANGING = (
    Promise(name="in use again, s", figure=lambda result: result.reused_s, bound=60.0),
    Promise(name="revoked late, s", figure=lambda result: result.revoked_s - result.due_s, bound=0.0),
)


def table(
    title: str, play: Callable[..., Any], promises: tuple[Promise, ...], args: argparse.Namespace
) -> int:
    """Print the table line by line; returns how many promises are broken."""
    print(f"{title}, the worst of {args.seeds} seeds", flush=True)
    print("writers".rjust(8), *(promise.name.rjust(WIDTH) for promise in promises))
    signs = (f"{'>=' if promise.least else '<='} {promise.bound:g}" for promise in promises)
    print("bound".rjust(8), *(sign.rjust(WIDTH) for sign in signs))
    num_broken = 0
    for num_writers in map(int, args.writers.split(",")):
        results = [play(num_writers, seed=seed).run() for seed in range(1, args.seeds + 1)]
        cells = []
        for promise in promises:
            worst = promise.worst(results)
            num_broken += not promise.is_kept(worst)
            cells.append(f"{'' if promise.is_kept(worst) else 'BROKEN '}{worst:.2f}")
        print(str(num_writers).rjust(8), *(cell.rjust(WIDTH) for cell in cells), flush=True)
    return num_broken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writers", default="1,2,16,64", help="how many write at a time")
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    num_broken = table("400 GB/s, then 160, then 400", Degrading, DEGRADING, args)
    num_broken += table("A writer hangs", Hanging, HANGING, args)
    return 1 if num_broken else 0


if __name__ == "__main__":
    sys.exit(main())
