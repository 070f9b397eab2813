"""What `rampmeter checkpoints` can be told to do: the shape of a verb, and what all verbs share."""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass

FINE = 0
WRONG = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One verb. `summary` is for the list of verbs, `help` with an example; `run` returns the exit code."""

    name: str
    summary: str
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def add_root(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("root", metavar="ROOT", help="the directory that holds one job's checkpoints")


def add_which(parser: argparse.ArgumentParser, *, count: str) -> None:
    """count: `+` one or more, `*` any number."""
    parser.add_argument(
        "which", metavar="WHICH", nargs=count, help="a step, the name of a directory, or `newest`"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")


def say(text: str) -> None:
    """Beside the answer: to people, on standard error."""
    print(f"rampmeter checkpoints: {text}", file=sys.stderr)  # noqa: T201
