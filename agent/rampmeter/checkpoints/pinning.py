"""`pin` and `unpin`: checkpoints that no retention removes."""

import argparse

from rampmeter.checkpoints.selecting import select
from rampmeter.checkpoints.survey import Condition, Found, Survey, read_root, survey
from rampmeter.checkpoints.telling import as_json
from rampmeter.checkpoints.verb import FINE, WRONG, Verb, add_json, add_root, add_which, say
from rampmeter.core.clock import SystemClock
from rampmeter.core.errors import ConfigError
from rampmeter.marks import Mark, take_mark
from rampmeter.printing import print_answer
from rampmeter.removal import pin


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_root(parser)
    add_which(parser, count="+")
    add_json(parser)


def _pin(args: argparse.Namespace) -> int:
    found = survey(read_root(args.root))
    chosen = select(found, args.which)
    for item in chosen:
        _check_can_be_pinned(item)
    pinned = [item for item in chosen if _pinned(found, item)]
    _print(args, found, "pinned", pinned)
    return FINE if len(pinned) == len(chosen) else WRONG


def _check_can_be_pinned(item: Found) -> None:
    if item.condition is Condition.UNCOMMITTED:
        raise ConfigError(f"WHICH: {item.name} is no checkpoint: {item.why}")


def _pinned(found: Survey, item: Found) -> bool:
    try:
        done = pin(found.root.directory(item.name), SystemClock())
    except FileNotFoundError:
        done = False
    except OSError as error:
        raise ConfigError(f"{item.name} cannot be pinned: {error.strerror}") from None
    if not done:
        say(f"{item.name} is not pinned: it was being removed")
    return done


def _unpin(args: argparse.Namespace) -> int:
    found = survey(read_root(args.root))
    chosen = select(found, args.which)
    for item in chosen:
        try:
            if not take_mark(found.root.directory(item.name), Mark.PINNED):
                say(f"{item.name} was not pinned")
        except OSError as error:
            raise ConfigError(f"{item.name} cannot be unpinned: {error.strerror}") from None
    _print(args, found, "unpinned", chosen)
    return FINE


def _print(args: argparse.Namespace, found: Survey, what: str, done: list[Found]) -> None:
    names = [str(item.name) for item in done]
    if args.json:
        print_answer(as_json({"root": str(found.root.path), what: names}))
    else:
        print_answer("".join(f"{what} {name}\n" for name in names))


PIN = Verb(
    name="pin",
    summary="keep a checkpoint whatever retention says",
    help="""\
Keep a checkpoint whatever retention says, until it is unpinned.

Example:
  rampmeter checkpoints pin /lustre/run7 40000
""",
    add_arguments=_arguments,
    run=_pin,
)

UNPIN = Verb(
    name="unpin",
    summary="let retention decide about it again",
    help="""\
Let retention decide again about a checkpoint.

Example:
  rampmeter checkpoints unpin /lustre/run7 40000
""",
    add_arguments=_arguments,
    run=_unpin,
)
