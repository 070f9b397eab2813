"""`rampmeter demo`: plays both acts, shows them and says what they mean.

Exit codes: 0 all that it promises held, 1 something did not, 2 a wrong option, 130 stopped by a signal.
"""

import argparse
import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from rampmeter.core.errors import ConfigError
from rampmeter_coordinator.demo.acts import Director
from rampmeter_coordinator.demo.errors import DemoFailed
from rampmeter_coordinator.demo.figures import Act, Figures, act_figures, as_json, figures, problems
from rampmeter_coordinator.demo.picture import draw
from rampmeter_coordinator.demo.report import in_short, report
from rampmeter_coordinator.demo.scenario import Scenario, scenario
from rampmeter_coordinator.demo.screen import LineScreen, LiveScreen, Screen, introduction
from rampmeter_coordinator.demo.service import Service
from rampmeter_coordinator.demo.storage import SharedStorage
from rampmeter_coordinator.demo.troupe import Troupe
from rampmeter_coordinator.demo.workspace import stoppable, work_directory

_DEFAULT_ACT_S = 36.0
_SHORTEST_ACT_S = 12.0
_DEFAULT_PICTURE = "rampmeter-demo.png"
_PICTURE_ENDINGS = (".png", ".svg", ".pdf")
_EXTRA = ("torch", "numpy", "xxhash", "matplotlib")
_INTERRUPTED = 130

_HELP = """\
Show the problem and the cure on this machine: six real training jobs checkpoint to one emulated storage, first as a
herd, then metered by a coordinator; one job is killed and resumes. Takes about 90 seconds on 2 cores, needs 2 GB of
memory and 2 GB of disk, and removes what it wrote.

Example:
  rampmeter demo --kill-coordinator --png timeline.png

Exit code 0 if every checkpoint restored and the metered act was better, else 1. Needs pip install 'rampmeter[demo]'.
"""


class DemoCommand:
    """Fulfils rampmeter.cli.Command."""

    name = "demo"
    help = _HELP

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print nothing but the figures, as JSON")
        parser.add_argument(
            "--png",
            metavar="PATH",
            help=f"where the picture goes (default {_DEFAULT_PICTURE}; with --json: none)",
        )
        parser.add_argument(
            "--keep", metavar="DIR", help="work in DIR, which must be empty, and leave everything there"
        )
        parser.add_argument("--seed", type=int, default=0, help="of weights, data and phases (default 0)")
        parser.add_argument(
            "--act-seconds",
            type=float,
            default=_DEFAULT_ACT_S,
            metavar="S",
            help=f"length of each act (default {_DEFAULT_ACT_S:g}, at least {_SHORTEST_ACT_S:g})",
        )
        parser.add_argument(
            "--kill-coordinator",
            action="store_true",
            help="in the middle of act 2 also kill -9 the coordinator and start it again",
        )

    def run(self, args: argparse.Namespace) -> int:
        if args.act_seconds < _SHORTEST_ACT_S:
            raise ConfigError(f"option --act-seconds: must be at least {_SHORTEST_ACT_S:g}")
        _check_extra()
        args.png = args.png or (None if args.json else _DEFAULT_PICTURE)
        if args.png is not None:
            _check_picture(Path(args.png))
        console = Console(stderr=args.json, quiet=args.json and not sys.stderr.isatty())
        try:
            with stoppable(), work_directory(args.keep) as directory:
                found = _Demo(args, console, directory).play()
        except DemoFailed as error:
            Console(stderr=True).print(f"rampmeter demo: {error}", style="red", markup=False)
            return 1
        except KeyboardInterrupt:
            Console(stderr=True).print("rampmeter demo: stopped; nothing is left running")
            return _INTERRUPTED
        return 1 if problems(found) else 0


def _check_extra() -> None:
    """Before any process starts, and without importing what takes seconds."""
    missing = [name for name in _EXTRA if find_spec(name) is None]
    if missing:
        raise ConfigError(f"needs {', '.join(missing)}: pip install 'rampmeter[demo]'")


def _check_picture(path: Path) -> None:
    """Nobody should wait for both acts to hear it."""
    directory = path.absolute().parent
    if path.suffix.lower() not in _PICTURE_ENDINGS:
        raise ConfigError(f"option --png: {path} must end in {', '.join(_PICTURE_ENDINGS)}")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise ConfigError(f"option --png: {directory} is no directory that can be written to")


class _Demo:
    """One run, from the first process to the last."""

    def __init__(self, args: argparse.Namespace, console: Console, directory: Path) -> None:
        self._args = args
        self._console = console
        self._directory = directory
        self._scenario: Scenario = scenario(act_s=args.act_seconds, seed=args.seed)

    def play(self) -> Figures:
        capacity = self._scenario.capacity_bytes_per_s
        storage = self._directory / "storage"
        SharedStorage.create(storage, capacity).close()
        with Troupe() as troupe, Service(self._directory / "coordinator", capacity) as service:
            self._console.print(introduction(self._scenario, service.url))
            with self._screen() as screen:
                director = Director(troupe, self._scenario, self._directory, storage, screen.update)
                herd = director.herd()
                screen.say(in_short(act_figures(self._scenario, herd), "Act 1"))
                metered = director.metered(service, kill_coordinator=self._args.kill_coordinator)
                screen.say(in_short(act_figures(self._scenario, metered), "Act 2"))
                screen.say("Restoring the newest checkpoints with fresh processes ...")
                restores = director.check_all()
        found = figures(self._scenario, herd, metered, restores, director.victim)
        self._tell(found, herd, metered)
        return found

    def _screen(self) -> Screen:
        if self._console.is_terminal:
            return LiveScreen(self._console, self._scenario)
        return LineScreen(self._console, self._scenario)

    def _tell(self, found: Figures, herd: Act, metered: Act) -> None:
        if self._args.png is not None:
            draw(Path(self._args.png), self._scenario, herd, metered)
        if self._args.json:
            print(json.dumps(as_json(found), indent=1))  # noqa: T201
            return
        self._console.print(report(found, self._scenario))
        self._console.print(f"Picture of both acts: {self._args.png}", highlight=False)
