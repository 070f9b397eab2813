"""The `rampmeter` command: finds sub-commands by entry point and runs one. Imports nothing that it does not run.

A sub-command is a class in the entry point group `rampmeter.commands` that fulfils `Command`. Exit codes: 0 done,
2 a wrong call or setting (the message names it); the rest is the sub-command's own.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points, version
from typing import Protocol

from rampmeter.core.errors import ConfigError

GROUP = "rampmeter.commands"
_EXTRA_OF: Mapping[str, str] = {
    "torch": "torch",
    "numpy": "torch",
    "xxhash": "torch",
    "fastapi": "coordinator",
    "starlette": "coordinator",
    "pydantic": "coordinator",
    "msgspec": "coordinator",
    "uvicorn": "coordinator",
    "uvloop": "coordinator",
    "httptools": "coordinator",
    "prometheus_client": "coordinator",
    "rich": "coordinator",
    "redis": "redis",
    "matplotlib": "demo",
}


class Command(Protocol):
    """A sub-command. `help` is one sentence, or several with an example."""

    name: str
    help: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare options."""
        ...

    def run(self, args: argparse.Namespace) -> int:
        """Do it and return the exit code."""
        ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run `rampmeter` with these arguments."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    commands = {found.name: found for found in entry_points(group=GROUP)}
    if not arguments or arguments[0] not in commands:
        return _without_command(arguments, commands)
    try:
        command: Command = commands[arguments[0]].load()()
        parser = argparse.ArgumentParser(
            prog=f"rampmeter {command.name}",
            description=command.help,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,  # a short form that works today is another option, or none, once one is added
        )
        command.add_arguments(parser)
        return command.run(parser.parse_args(arguments[1:]))
    except ConfigError as error:
        return _refuse(arguments[0], str(error))
    except ModuleNotFoundError as error:
        extra = _EXTRA_OF.get((error.name or "").split(".")[0])
        if extra is None:
            raise
        return _refuse(
            arguments[0], f"needs {error.name}, which is not installed: pip install 'rampmeter[{extra}]'"
        )


def _refuse(command: str, why: str) -> int:
    print(f"rampmeter {command}: {why}", file=sys.stderr)  # noqa: T201
    return 2


def _without_command(arguments: Sequence[str], commands: Mapping[str, EntryPoint]) -> int:
    names = ", ".join(sorted(commands))
    parser = argparse.ArgumentParser(
        prog="rampmeter",
        description="A ramp meter for training checkpoints: spreads, paces and times the checkpoints of all jobs that "
        "share a storage system.",
        epilog="`rampmeter COMMAND --help` explains a command.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"rampmeter {version('rampmeter')}")
    parser.add_argument("command", metavar="COMMAND", choices=sorted(commands), help=names)
    parser.parse_args(arguments or ["--help"])
    return 2
