"""The simulated promises in full: `python tests/soak/fleet.py`. Exits with 1 where one of them is not kept.

Waste of 200 mixed jobs against the priced bound at five loads, preemption saves, and arming with one writer. Figures go
to stdout, one JSON object a line. This takes an hour or more on one core: `--only` and `--days` do less.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from rampmeter_coordinator.sim.arming import Arming
from rampmeter_coordinator.sim.fleet import Fleet, FleetResult, FleetScenario

LOADS = (0.5, 0.8, 0.95, 1.5, 3.0)
GAP_POINTS = 0.01
ARMING_S = 4 * 3600.0

Finding = tuple[str, Any, list[str]]
"""What was measured, its result, and the promises that it breaks."""


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def fleets(days: float) -> Iterator[Finding]:
    """Waste and waits, without preemptions: each costs the first save of another attempt, which the bound has not."""
    for load in LOADS:
        scenario = FleetScenario(load=load, days=days, warm_days=days / 8.0, share_preempted=0.0)
        result = Fleet(scenario).run(_say)
        broken = []
        if result.gap_points > GAP_POINTS:
            broken.append(
                f"waste {result.gap_points:.4f} points above the bound (error {result.gap_error_points:.4f})"
            )
        if result.longest_age > 2.0:
            broken.append(f"a job was {result.longest_age:.2f} of its intervals without a save")
        yield "fleet", result, broken


def notices(days: float) -> Iterator[Finding]:
    """Two of a hundred saves have a deadline of 120 s."""
    for load in LOADS:
        result = Fleet(FleetScenario(load=load, days=days / 4.0, warm_days=days / 32.0)).run(_say)
        yield "notices", result, _unmet(result)


def _unmet(result: FleetResult) -> list[str]:
    broken = []
    if result.num_missed or result.num_ungoverned:
        broken.append(f"{result.num_missed} deadlines missed, {result.num_ungoverned} saves without a lease")
    return broken


def arming(_: float) -> Iterator[Finding]:
    """One writer at a time."""
    for leads_s, least in (([30.0], 0.95), ([0.0, 2.0, 10.0, 30.0, 90.0], 0.93)):
        result = Arming(leads_s, seed=1).run(ARMING_S)
        broken = (
            [] if result.busy_share >= least else [f"storage busy {result.busy_share:.3f} while jobs wait"]
        )
        yield "arming", result, broken


PARTS: dict[str, Callable[[float], Iterator[Finding]]] = {
    "fleets": fleets,
    "notices": notices,
    "arming": arming,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", help="one part; may be repeated")
    parser.add_argument("--days", type=float, default=4.0, help="simulated days of a fleet")
    args = parser.parse_args()
    num_broken = 0
    for name in args.only or PARTS:
        for what, result, broken in PARTS[name](args.days):
            print(json.dumps({"what": what, "broken": broken} | asdict(result)), flush=True)
            num_broken += len(broken)
    return 1 if num_broken else 0


if __name__ == "__main__":
    sys.exit(main())
