"""The adversarial world until enough was seen: `python tests/invariants/soak.py --events N [--seed S]`.

First random runs of all profiles, then the state machine, N events each. The seed is drawn and printed; the same one
shows the same again. Exits with 1 if anything was seen that must not be, and says which seed shows it.
"""

import argparse
import secrets
import sys
from dataclasses import dataclass, replace
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as seeded
from hypothesis.stateful import run_state_machine_as_test

from invariants.faults import Faults
from invariants.machine import AdversarialMachine
from invariants.observer import Violation
from invariants.world import POOL, World

FAULTY_S = 1200.0
QUIET_S = 1500.0
RUNS_PER_SEED = 10

PROFILES = {
    "everything": (Faults(), POOL),
    "restarts": (Faults(restarts=1 / 60, zombies=1 / 60, retune=0.3), POOL),
    "lost memory": (Faults(restarts=1 / 80, forget=0.5), POOL),
    "lossy": (Faults(loss=0.4, duplicates=0.4), POOL),
    "partitions": (Faults(partitions=1 / 25, loss=0.02), POOL),
    "few writers": (
        Faults(),
        replace(POOL, max_writers=2, utilisation=1.0),
    ),
    "short safe time": (
        Faults(partitions=1 / 25, deaths=0, zombies=0),
        replace(POOL, safe_for_s=60.0),
    ),
    "fail-overs": (Faults(restarts=1 / 50, forget=0.5, partitions=1 / 40), POOL),
    "restores": (Faults(restores=1 / 60, notices=1 / 120), replace(POOL, shared_reads=True)),
    "tenants": (Faults(), replace(POOL, max_tenant_bytes_per_s=300)),
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


def machine_settings(num_runs: int, *, derandomize: bool = False) -> settings:
    """What all runs of the state machine have in common."""
    return settings(
        max_examples=num_runs,
        stateful_step_count=30,
        derandomize=derandomize,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )


def machine_campaign(num_events: int, first_seed: int) -> int:
    """Runs of the state machine until `num_events` were seen; returns how many. A failure raises, made small."""
    before, seed = AdversarialMachine.num_events, first_seed
    while AdversarialMachine.num_events - before < num_events:
        print(
            f"state machine, seed {seed}: {AdversarialMachine.num_events - before:,} events so far",
            flush=True,
        )
        machine = seeded(seed)(type("Machine", (AdversarialMachine,), {}))
        run_state_machine_as_test(machine, settings=machine_settings(RUNS_PER_SEED))
        seed += 1
    return AdversarialMachine.num_events - before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31), help="the first seed")
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    report = campaign(args.events, args.seed)
    for name, seed, violation in report.violations:
        print(f"profile {name!r}, seed {seed}: {violation}")
    print(
        f"{report.num_runs} runs, {report.num_events:,} events, {report.num_saves:,} saves, "
        f"{len(report.violations)} violations",
        flush=True,
    )
    print(f"state machine: {machine_campaign(args.events, args.seed):,} events, nothing seen")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
