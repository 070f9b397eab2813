"""`ls` and `show`: what is there. They change nothing."""

import argparse

from rampmeter.checkpoints.selecting import select
from rampmeter.checkpoints.survey import read_root, survey
from rampmeter.checkpoints.telling import as_json, list_json, list_text, show_json, show_text
from rampmeter.checkpoints.verb import FINE, WRONG, Verb, add_json, add_root, add_which
from rampmeter.printing import print_answer


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    add_root(parser)
    add_json(parser)


def _list(args: argparse.Namespace) -> int:
    found = survey(read_root(args.root))
    print_answer(as_json(list_json(found)) if args.json else list_text(found))
    return WRONG if any(item.condition.is_wrong for item in found.found) else FINE


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    add_root(parser)
    add_which(parser, count="+")
    add_json(parser)


def _show(args: argparse.Namespace) -> int:
    root = read_root(args.root)
    chosen = select(survey(root), args.which)
    if args.json:
        text = as_json({"root": str(root.path), "checkpoints": [show_json(item) for item in chosen]})
    else:
        text = "\n".join(show_text(item) for item in chosen)
    print_answer(text)
    return WRONG if any(item.condition.is_wrong for item in chosen) else FINE


LS = Verb(
    name="ls",
    summary="list what stands under a root",
    help="""\
List what stands under a root, newest first, with all that is wrong by sizes, or
that reading has shown before: whole, damaged, of a newer format, unverifiable
(its digests are of an unknown kind), unreadable, uncommitted (being written, or
left by a crash), half removed. Reads no contents: `verify` does.

Example:
  rampmeter checkpoints ls /lustre/run7
""",
    add_arguments=_list_arguments,
    run=_list,
)

SHOW = Verb(
    name="show",
    summary="say everything about a checkpoint",
    help="""\
Say everything that is known about a checkpoint.

Example:
  rampmeter checkpoints show /lustre/run7 newest
""",
    add_arguments=_show_arguments,
    run=_show,
)
