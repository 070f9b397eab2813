"""`rampmeter serve`: read settings, serve, and say where. Exit codes: 0 stopped by a signal, 1 no store, 2 settings."""

import argparse
import logging
import os
import sys
from pathlib import Path

import uvloop

from rampmeter.core.errors import ConfigError
from rampmeter_coordinator.errors import Fenced, StoreUnavailable
from rampmeter_coordinator.logs import set_up_logs
from rampmeter_coordinator.server import serve
from rampmeter_coordinator.settings import read_settings

_HELP = """\
Run the coordinator: one small service that tells training jobs when to write their checkpoints, and how fast.

Example:
  rampmeter serve --capacity 100GB/s --data-dir /var/lib/rampmeter

Without a file there is one pool, "default". Several come from the file given by --config:
  [server]
  host = "0.0.0.0"
  [pools.lustre]
  capacity = "2TB/s"

Options from --config to --fresh are also variables (RAMPMETER_HOST, RAMPMETER_CAPACITY, ...). The command line wins
over variables, variables win over the file.
"""

log = logging.getLogger(__name__)


class ServeCommand:
    """Fulfils rampmeter.cli.Command."""

    name = "serve"
    help = _HELP

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--config", metavar="FILE", help="TOML file with [server] and [pools.NAME]")
        parser.add_argument("--host", help="address to listen on (default 127.0.0.1)")
        parser.add_argument("--port", help="port to listen on (default 8000; 0 = any free one)")
        parser.add_argument(
            "--data-dir",
            metavar="DIR",
            help="where the SQLite store lives, on a local disk (default ~/.local/state/rampmeter)",
        )
        parser.add_argument("--store", help="sqlite (default), memory, or redis://HOST:6379/0")
        parser.add_argument(
            "--advertise-url",
            metavar="URL",
            help="where other replicas over the same Redis reach this one (default: the address it listens on)",
        )
        parser.add_argument("--capacity", metavar="RATE", help='capacity of pool default, such as "2TB/s"')
        parser.add_argument(
            "--fresh",
            action="store_true",
            default=None,
            help="no job was ever served from these pools: skip the grace period of an empty store",
        )
        parser.add_argument("--json-logs", action="store_true", help="log one JSON object a line")
        parser.add_argument(
            "--ready-file", metavar="PATH", help="write the URL here once requests are answered"
        )

    def run(self, args: argparse.Namespace) -> int:
        options = vars(args)
        set_up_logs(as_json=options.pop("json_logs"))
        ready_file = options.pop("ready_file")
        settings = read_settings(options, os.environ)
        try:
            uvloop.run(serve(settings, lambda url: _ready(url, ready_file)))
        except (StoreUnavailable, Fenced) as error:
            log.error("cannot serve: %s", error)  # noqa: TRY400
            return 1
        return 0


def _ready(url: str, ready_file: str | None) -> None:
    print(f"rampmeter serves {url}", flush=True, file=sys.stdout)  # noqa: T201
    if ready_file is None:
        return
    path = Path(ready_file)
    try:
        part = path.with_name(f"{path.name}.part")
        part.write_text(f"{url}\n")
        part.replace(path)  # whoever waits for the file never sees half of it
    except OSError as error:
        raise ConfigError(f"option --ready-file: {path} cannot be written: {error.strerror}") from None
