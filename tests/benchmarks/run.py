"""`make bench`: measures the promises and writes build/bench.json, NAME -> {value, unit, runs, low, high, ...}.

python tests/benchmarks/run.py                 everything, some ten minutes
python tests/benchmarks/run.py loop ledger     only these; other entries of the file stay
python tests/benchmarks/run.py loop --json     the figures of this run on stdout, too, each with its promise

Exits with 1 if a figure of this run misses what was promised of it.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from benchmarks.promises import is_missed, promise_of  # noqa: E402
from benchmarks.summary import Result  # noqa: E402

OUTPUT = HERE.parent.parent / "build" / "bench.json"


def flush() -> dict[str, Result]:
    """The writer: lease at the device, stall, flush, verified restore."""
    from benchmarks import agent_flush  # noqa: PLC0415 - torch only where it is measured

    return agent_flush.measure(OUTPUT.parent, Path("/dev/shm"))


def loop() -> dict[str, Result]:
    """The training loop: an idle step, a coordinator that never answers."""
    from benchmarks import agent_loop  # noqa: PLC0415

    return agent_loop.measure()


def slowdown() -> dict[str, Result]:
    """Steps beside a flush, with few large and with many small tensors, in a thread and in a process."""
    from benchmarks import agent_slowdown  # noqa: PLC0415

    return agent_slowdown.measure(OUTPUT.parent)


def ledger() -> dict[str, Result]:
    """One decision."""
    from benchmarks import ledger_apply  # noqa: PLC0415

    return ledger_apply.measure()


def memory() -> dict[str, Result]:
    """Memory of one job."""
    from benchmarks import ledger_memory  # noqa: PLC0415

    return ledger_memory.measure()


def pricing() -> dict[str, Result]:
    """The price for 10,000 jobs."""
    from benchmarks import pricing  # noqa: PLC0415

    return pricing.measure()


def engine() -> dict[str, Result]:
    """One decision with log and commit, in three stores."""
    from benchmarks import engine_decisions  # noqa: PLC0415

    return engine_decisions.measure(OUTPUT.parent)


def http() -> dict[str, Result]:
    """One request of a slot cycle over HTTP."""
    from benchmarks import http_cycle  # noqa: PLC0415

    return http_cycle.measure(OUTPUT.parent)


def held() -> dict[str, Result]:
    """5,000 requests that wait."""
    from benchmarks import http_held  # noqa: PLC0415

    return http_held.measure(OUTPUT.parent)


SUITES: dict[str, Callable[[], dict[str, Result]]] = {
    "ledger": ledger,
    "memory": memory,
    "pricing": pricing,
    "engine": engine,
    "http": http,
    "held": held,
    "loop": loop,
    "flush": flush,
    "slowdown": slowdown,
}


def main() -> int:
    chosen, as_json = arguments()
    console = Console(stderr=True)
    OUTPUT.parent.mkdir(exist_ok=True)  # before all: suites write there
    measured: dict[str, Result] = {}
    for name in chosen:
        with console.status(f"measuring {name}: {SUITES[name].__doc__}"):
            measured |= SUITES[name]()
        results = written_with(measured)
    if as_json:
        print(json.dumps({name: judged(name, entry) for name, entry in sorted(measured.items())}, indent=1))
    console.print(table(results))
    missed = sorted(name for name, entry in measured.items() if is_missed(name, entry))
    if missed:
        console.print(f"[red]missed: {', '.join(missed)}[/]", soft_wrap=True)
    return 1 if missed else 0


def arguments() -> tuple[list[str], bool]:
    """Which suites, and whether --json."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)}; all if none is named"
    )
    parser.add_argument("--json", action="store_true", help="the figures of this run on stdout")
    given = parser.parse_args()
    if unknown := set(given.suites) - set(SUITES):
        parser.error(f"no such suite: {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    return given.suites or list(SUITES), given.json


def written_with(measured: dict[str, Result]) -> dict[str, Result]:
    """All that is in the file now: what was measured, and what other runs have found."""
    before = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else {}
    results = before | measured
    OUTPUT.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    return results


def judged(name: str, entry: Result) -> Result:
    """The figure, its promise (null = none was made) and whether it is kept."""
    promise = promise_of(name)
    return entry | {"promise": promise and str(promise), "kept": not is_missed(name, entry)}


def table(results: dict[str, Result]) -> Table:
    shown = Table(title=str(OUTPUT.relative_to(Path.cwd())) if OUTPUT.is_relative_to(Path.cwd()) else None)
    for heading in ("name", "value", "promise", "unit", "runs", "low", "high", "load"):
        shown.add_column(heading, justify="left" if heading == "name" else "right")
    for name, entry in sorted(results.items()):
        more = (str(entry.get(key, "")) for key in ("unit", "runs", "low", "high", "load"))
        shown.add_row(
            name,
            str(entry["value"]),
            str(promise_of(name) or ""),
            *more,
            style="red" if is_missed(name, entry) else None,
        )
    return shown


if __name__ == "__main__":
    sys.exit(main())
