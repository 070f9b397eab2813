"""Random runs of the adversarial world until enough events were seen: `python tests/invariants/soak.py --events N`.

Exits with 1 if anything was seen that must not be, and says which seed shows it.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from invariants.observer import Violation
from invariants.world import Faults, World
from rampmeter_coordinator.model.pool import PoolConfig

FAULTY_S = 1200.0
QUIET_S = 1500.0

POOL = PoolConfig(name="pool", capacity_bytes_per_s=1000)

PROFILES = {
    "everything": (Faults(), POOL),
    "restarts": (Faults(restarts=1 / 60, zombies=1 / 60, retune=0.3), POOL),
    "lost memory": (Faults(restarts=1 / 80, forget=0.5), POOL),
    "lossy": (Faults(loss=0.4, duplicates=0.4), POOL),
    "partitions": (Faults(partitions=1 / 25, loss=0.02), POOL),
    "few writers": (
        Faults(),
        PoolConfig(name="pool", capacity_bytes_per_s=1000, max_writers=2, utilisation=1.0),
    ),
    "short safe time": (
        Faults(partitions=1 / 25, deaths=0, zombies=0),
        PoolConfig(name="pool", capacity_bytes_per_s=1000, safe_for_s=60.0),
    ),
}
"""What a run is made of, by name. A kept plan of a dead attempt outlives a short safe time: no new attempts there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a campaign saw."""

    num_runs: int
    num_events: int
    num_saves: int
    violations: tuple[tuple[str, int, Violation], ...]


def campaign(num_events: int, first_seed: int = 0) -> Report:
    """Runs of all profiles in turn, until `num_events` were seen."""
    seen = saves = runs = 0
    violations: list[tuple[str, int, Violation]] = []
    names = list(PROFILES)
    while seen < num_events:
        name, seed = names[runs % len(names)], first_seed + runs // len(names)
        faults, config = PROFILES[name]
        world = World(seed, faults, config=config)
        world.run(FAULTY_S)
        world.calm_down(QUIET_S)
        runs, seen = runs + 1, seen + world.num_events
        saves += sum(len(job.saved_s) for job in world.jobs)
        violations += [(name, seed, violation) for violation in world.violations]
    return Report(num_runs=runs, num_events=seen, num_saves=saves, violations=tuple(violations))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    args = parser.parse_args()
    report = campaign(args.events, args.seed)
    for name, seed, violation in report.violations:
        print(f"profile {name!r}, seed {seed}: {violation}")
    print(
        f"{report.num_runs} runs, {report.num_events:,} events, {report.num_saves:,} saves, "
        f"{len(report.violations)} violations"
    )
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
