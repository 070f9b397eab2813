"""No torn checkpoint, in full: `python tests/soak/crash.py --kills 500`. Exits with 1 if anything is wrong.

One job after another is killed at a random instant of its life, most of them under one root, as a job that is unlucky
for weeks. After each kill a fresh look restores: every value of every tensor must be of one step, not before the last
one that was told as committed, and `rampmeter checkpoints ls` and `verify` must say the same. Now and then the next
start is let through to one more save, and what the disk holds is counted. The last line is the summary, as JSON.
"""

import argparse
import json
import logging
import random
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from rampmeter.core.clock import SystemClock
from rampmeter.layout import Root
from support.crash_check import Lost, check_recovered, check_root
from support.crash_lives import Life, killed_after, ranks_killed_after
from support.crash_victim import KEEP, SIZE_BYTES, Told, disk_bytes
from support.forked import Nursery, nursery

LONGEST_LIFE_S = {"whole": 0.6, "bare": 0.6, "two_ranks": 2.0, "two_ranks_process": 8.0}
"""From before the claim to after the third save; a process that writes takes seconds to start."""

LONGEST_APART_S = 1.0
"""From the end of one rank to that of the others."""

KILLS_PER_ROOT = 50
RECOVER_EVERY = 10
MAX_STATES = KEEP + 2
KINDS = {
    (1, "thread"): ("whole", "bare"),
    (2, "thread"): ("two_ranks",),
    (2, "process"): ("two_ranks_process",),
}
"""The victims of so many ranks that write so, which take turns by root."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """What was found. wrong: a mixture, or another look that says else. lost: told as committed, not found."""

    kills: int = 0
    exact: int = 0
    before_first: int = 0
    wrong: int = 0
    lost: int = 0
    exceptions: int = 0
    worst_disk_states: float = 0.0
    """At any kill; what is promised is the figure after a recovery."""
    worst_recovered_states: float = 0.0

    @property
    def is_clean(self) -> bool:
        return not (self.wrong or self.lost or self.exceptions)


class Soak:
    """Kills until there are enough."""

    def __init__(self, victims: Nursery, draw: random.Random, ranks: int, mode: str) -> None:
        self.tally = Tally()
        self._victims = victims
        self._draw = draw
        self._ranks = ranks
        self._kinds = KINDS[ranks, mode]

    def kill_under_one_root(self, root: Root, num_kills: int) -> None:
        """A job that is killed again and again."""
        kind = self._kinds[self.tally.kills // KILLS_PER_ROOT % len(self._kinds)]
        life = Life(kind=kind, num_saves=10_000)
        step = 0
        for number in range(1, num_kills + 1):
            told = self._end(life, root)
            self.tally.kills += 1
            if root.path.exists():
                held = disk_bytes(root.path) / SIZE_BYTES
                self.tally.worst_disk_states = max(self.tally.worst_disk_states, round(held, 2))
            with self._judged(root):
                step = check_root(root, told, before=step)
                self.tally.exact += step > 0
                self.tally.before_first += step == 0
                if number % RECOVER_EVERY == 0:
                    step = self._recover(life, root)

    def _end(self, life: Life, root: Root) -> Told:
        """Of several ranks all are killed at once, or one of them first."""
        program = life.start(self._victims, root)
        delay_s = self._draw.uniform(0.0, LONGEST_LIFE_S[life.kind])
        if self._ranks == 1:
            return killed_after(program, delay_s)
        first = self._draw.choice([None, *range(self._ranks)])
        apart_s = self._draw.uniform(0.0, LONGEST_APART_S)
        return ranks_killed_after(program, delay_s, first=first, apart_s=apart_s)

    def _recover(self, life: Life, root: Root) -> int:
        life.recover(self._victims, root)
        held = check_recovered(root, MAX_STATES, SIZE_BYTES)
        self.tally.worst_recovered_states = max(self.tally.worst_recovered_states, round(held, 2))
        return root.committed_steps()[0].step

    @contextmanager
    def _judged(self, root: Root) -> Iterator[None]:
        """What does not hold is counted, and the root is kept to be looked at."""
        try:
            yield
        except Lost as error:
            self.tally.lost += 1
            self._keep(root, f"lost: {error}")
        except AssertionError as error:
            self.tally.wrong += 1
            self._keep(root, f"wrong: {error}")
        except Exception:
            self.tally.exceptions += 1
            self._keep(root, traceback.format_exc())

    def _keep(self, root: Root, why: str) -> None:
        kept = Path(tempfile.mkdtemp(prefix="rampmeter-soak-"))
        shutil.copytree(root.path, kept / "root")
        print(f"kill {self.tally.kills}: {why}\n  its root is kept in {kept}", file=sys.stderr, flush=True)


def main() -> int:
    """Kill, look, tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--ranks", type=int, default=1, choices=(1, 2))
    parser.add_argument(
        "--mode", default="thread", choices=("thread", "process"), help="who writes; with --ranks 2"
    )
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if (args.ranks, args.mode) not in KINDS:
        parser.error("--mode process is for --ranks 2")
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)  # what was skipped, at each look
    clock = SystemClock()
    begun_s = clock.now()
    with nursery() as victims:
        soak = Soak(victims, random.Random(args.seed), args.ranks, args.mode)
        while soak.tally.kills < args.kills:
            with tempfile.TemporaryDirectory() as where:
                num_kills = min(KILLS_PER_ROOT, args.kills - soak.tally.kills)
                soak.kill_under_one_root(Root(Path(where) / "root"), num_kills)
            took_s = (clock.now() - begun_s) / soak.tally.kills
            print(f"{soak.tally.kills} of {args.kills} kills, {took_s:.2f} s each", flush=True)
    print(json.dumps({"ranks": args.ranks, "mode": args.mode, "seed": args.seed} | asdict(soak.tally)))
    return 0 if soak.tally.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
