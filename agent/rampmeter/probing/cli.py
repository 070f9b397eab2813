"""`rampmeter probe`: measures what a directory takes, within bounds, and removes what it wrote.

Exit codes: 0 measured, 1 the storage did not play along, 2 a wrong option, a wrong directory or too little room,
130 stopped by a signal.
"""

import argparse
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rampmeter.core.clock import SystemClock
from rampmeter.core.errors import ConfigError
from rampmeter.core.units import parse_bytes
from rampmeter.printing import print_answer
from rampmeter.probing.errors import ProbeFailed, Stopped
from rampmeter.probing.figures import Round
from rampmeter.probing.files import Files
from rampmeter.probing.measuring import CHUNK_BYTES, MAX_SMALL_FILES, Limits, Meter
from rampmeter.probing.telling import as_json, as_text, intention, watcher
from rampmeter.probing.workspace import check_room, read_directory, sweep, work_directory
from rampmeter.progress import Bar

_DEFAULT_SIZE = "2GiB"
_DEFAULT_S = 20.0
_MAX_WRITERS = 64
_MAX_ROUNDS = 8
_MAX_BYTES = 10**13
_INTERRUPTED = 130
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_HELP = """\
Measure what a directory takes, for the `capacity` of a pool: write within
bounds the way the agent does, wait until it is durable, read it back, and
remove it, also after Ctrl-C. Asks nothing; refuses where less than twice of
what it may write is free. What a killed probe left behind is removed by the
next one of that host.

Examples:
  rampmeter probe /lustre/scratch
  rampmeter probe /lustre/scratch --size 50GiB --seconds 120 --writers 1,8,32

Exit codes: 0 measured, 1 the storage did not play along, 2 a wrong option,
directory or too little room, 130 stopped.
"""


class ProbeCommand:
    """Fulfils rampmeter.cli.Command."""

    name = "probe"
    help = _HELP

    def __init__(self, files: Files | None = None) -> None:
        self._files = files or Files()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("directory", metavar="DIR", help="a directory on the storage to measure")
        parser.add_argument("--size", help=f"most that is written in all (default {_DEFAULT_SIZE})")
        parser.add_argument(
            "--seconds",
            type=float,
            default=_DEFAULT_S,
            metavar="S",
            help=f"about how long it may take; the last sync is waited for (default {_DEFAULT_S:g})",
        )
        parser.add_argument(
            "--writers", default="1,4", metavar="N,N", help="numbers of writers, one round each (default 1,4)"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def run(self, args: argparse.Namespace) -> int:
        writers = _writers(args.writers)
        limits = _limits(args.size, args.seconds, writers)
        directory = read_directory(args.directory)
        self._sweep(directory)
        num_files = max(writers) * (1 + MAX_SMALL_FILES)
        check_room(
            directory,
            self._files,
            max_bytes=limits.max_bytes,
            num_files=num_files,
            size_was_given=args.size is not None,
        )
        _say(intention(directory, limits, writers))
        try:
            rounds = self._measure(directory, limits, writers)
        except ProbeFailed as error:
            _say(str(error))
            return 1
        except Stopped:
            _say("stopped; what it wrote is removed")
            return _INTERRUPTED
        told = as_json(directory, rounds) if args.json else as_text(directory, rounds)
        print_answer(told)
        return 0

    def _sweep(self, directory: Path) -> None:
        found = sweep(directory, self._files)
        if found.removed:
            _say(f"removed what an earlier probe left: {', '.join(found.removed)}")
        if found.strange:
            _say(f"left alone, remove it if no probe runs there: {', '.join(found.strange)}")

    def _measure(self, directory: Path, limits: Limits, writers: list[int]) -> list[Round]:
        bar = Bar(sys.stderr) if sys.stderr.isatty() else None
        with _stoppable() as stop:
            try:
                with work_directory(directory, self._files) as path:
                    meter = Meter(
                        path,
                        files=self._files,
                        clock=SystemClock(),
                        stop=stop,
                        watch=watcher(bar),
                        limits=limits,
                    )
                    return meter.measure(writers)
            finally:
                if bar is not None:
                    bar.end()


@contextmanager
def _stoppable() -> Iterator[threading.Event]:
    """Set by SIGINT, SIGTERM or SIGHUP; nothing else happens then, so that files are removed in order."""
    stop = threading.Event()

    def note(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, note) for number in _STOPPING}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _writers(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 4 and 1 <= int(part) <= _MAX_WRITERS for part in parts):
        raise ConfigError(f"option --writers: must be numbers from 1 to {_MAX_WRITERS}, for example 1,4")
    if len(parts) > _MAX_ROUNDS:
        raise ConfigError(f"option --writers: at most {_MAX_ROUNDS} numbers")
    return [int(part) for part in parts]


def _limits(size: str | None, seconds: float, writers: list[int]) -> Limits:
    try:
        max_bytes = parse_bytes(size or _DEFAULT_SIZE)
    except ConfigError as error:
        raise ConfigError(f"option --size: {error}") from None
    if not 1 <= seconds <= 3600:
        raise ConfigError("option --seconds: must be from 1 to 3600")
    if max_bytes > _MAX_BYTES:
        raise ConfigError("option --size: must be at most 10TB")
    least = CHUNK_BYTES * len(writers) * max(writers)
    if max_bytes < least:
        raise ConfigError(
            f"option --size: must be at least {least // 2**20}MiB for these writers, 1 MiB each"
        )
    return Limits(max_bytes=max_bytes, duration_s=seconds)


def _say(text: str) -> None:
    print(f"rampmeter probe: {text}", file=sys.stderr)  # noqa: T201
