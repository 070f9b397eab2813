"""`rampmeter replay`: does this release decide as the log says? Exit codes: 0 yes, 1 no, 2 it cannot be told."""

import argparse
import asyncio
import json
import os
from dataclasses import asdict

from rich.console import Console

from rampmeter.core.errors import ConfigError
from rampmeter_coordinator.errors import StoreUnavailable
from rampmeter_coordinator.replay import Replay, replay
from rampmeter_coordinator.settings import DEFAULT_POOL, Settings, read_settings
from rampmeter_coordinator.store.protocol import Segment
from rampmeter_coordinator.store.sqlite import read_only_segment

_HELP = """\
Decide again what a coordinator has decided since it opened a pool, and compare every reply with its log.

Examples:
  rampmeter replay --data-dir /var/lib/rampmeter
  rampmeter replay --store redis://cache:6379/0 --pool lustre --json

Reads only; the coordinator may be running. The log is capped (server.log_rows): a pool that was opened too many
decisions ago cannot be replayed from its beginning, and is not replayed at all.

Exit codes: 0 every reply is the same, 1 one is not (it is shown), 2 it cannot be told.
"""


class ReplayCommand:
    """Fulfils rampmeter.cli.Command."""

    name = "replay"
    help = _HELP

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--config", metavar="FILE", help="the coordinator's TOML file")
        parser.add_argument("--data-dir", metavar="DIR", help="where the coordinator's SQLite store lives")
        parser.add_argument("--store", help="sqlite (default) or the URL of the coordinator's Redis")
        parser.add_argument("--pool", default=DEFAULT_POOL, help=f"name of the pool (default {DEFAULT_POOL})")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def run(self, args: argparse.Namespace) -> int:
        options = vars(args)
        pool, as_json = options.pop("pool"), options.pop("json")
        segment = _whole(_read(read_settings(options, os.environ), pool), pool)
        result = replay(segment)
        if as_json:
            _print_json(pool, result)
        else:
            _print(pool, result)
        return 0 if result.difference is None else 1


def _read(settings: Settings, pool: str) -> Segment | None:
    if settings.store == "memory":
        raise ConfigError(
            "option --store: a memory store ends with its coordinator; nothing is there to replay"
        )
    if settings.store == "sqlite":
        return read_only_segment(settings.data_dir, pool)
    try:
        return asyncio.run(_read_redis(settings.store, pool))
    except StoreUnavailable as error:
        raise ConfigError(f"the store cannot be read: {error}") from None


async def _read_redis(url: str, pool: str) -> Segment | None:
    from rampmeter_coordinator.store.redis import RedisStore  # noqa: PLC0415  # an extra: only who uses it needs it

    store = await RedisStore.open(url)
    try:
        return await store.segment(pool)
    finally:
        await store.close()


def _whole(segment: Segment | None, pool: str) -> Segment:
    if segment is None:
        raise ConfigError(
            f"pool {pool}: the store has no log that says how it began; is the name right (--pool), and has a "
            "coordinator of this release opened it?"
        )
    if segment.num_missing:
        raise ConfigError(
            f"pool {pool}: the log does not reach back to where the pool was opened; {segment.num_missing} decisions "
            f"since then are gone, {len(segment.rows)} are kept. Set server.log_rows higher and restart the coordinator"
        )
    return segment


def _print_json(pool: str, result: Replay) -> None:
    print(json.dumps({"pool": pool, "same": result.difference is None, **asdict(result)}))  # noqa: T201


def _print(pool: str, result: Replay) -> None:
    console = Console(soft_wrap=True, highlight=False, markup=False)
    what = f"pool {pool}: {result.num_decisions} decisions of epoch {result.epoch} (release {result.release})"
    difference = result.difference
    if difference is None:
        console.print(f"{what}: every reply is the same")
        return
    console.print(f"{what}: decision {difference.row} at {difference.now_s:.3f} s comes out otherwise")
    console.print(f"  command  {difference.command}")
    console.print(f"  kept     {difference.kept}")
    console.print(f"  new      {difference.new}")
