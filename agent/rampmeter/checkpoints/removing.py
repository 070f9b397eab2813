"""`rm` and `prune`: what goes, and what is refused.

Refusals come before the first removal. The newest whole checkpoint, pinned ones, those of a newer version and what a
job may be writing are not removed; only the first and the last of these can be forced.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rampmeter.checkpoints.selecting import select
from rampmeter.checkpoints.survey import Condition, Found, Survey, read_root, survey
from rampmeter.checkpoints.telling import as_json, table
from rampmeter.checkpoints.verb import (
    FINE,
    WRONG,
    Verb,
    add_dry_run,
    add_json,
    add_root,
    add_which,
    say,
)
from rampmeter.core.clock import SystemClock
from rampmeter.core.errors import ConfigError
from rampmeter.layout import Root, StepName
from rampmeter.printing import print_answer
from rampmeter.removal import PAUSE_S, remove, remove_leftover
from rampmeter.retention import Keep, Kept, Reason, day_of, read_keep, why_kept
from rampmeter.temporaries import old_temporaries, sweep_temporaries

_LOOK_AGAIN_S = 2.0
"""A living process renames its temporary file within milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Going:
    """A directory that is to go, and whether it did. `problem` is empty if it went or was only asked about."""

    item: Found
    problem: str = ""


# -- rm ----------------------------------------------------------------------------------------------------------


def _rm_arguments(parser: argparse.ArgumentParser) -> None:
    add_root(parser)
    add_which(parser, count="+")
    parser.add_argument(
        "--force",
        action="store_true",
        help="also the newest whole checkpoint, and what the newest attempt has not committed",
    )
    add_dry_run(parser)
    add_json(parser)


def _rm(args: argparse.Namespace) -> int:
    found = survey(read_root(args.root))
    chosen = select(found, args.which)
    for item in chosen:
        refusal = _refusal(found, item, force=args.force)
        if refusal:
            raise ConfigError(f"{item.name} is not removed: {refusal}")
    gone = [_gone(found, item, dry_run=args.dry_run) for item in chosen]
    _print(args, found, gone, {}, [])
    return _code(gone)


def _refusal(found: Survey, item: Found, *, force: bool) -> str:
    """Why it must not go, or nothing."""
    if item.condition in (Condition.NEWER_FORMAT, Condition.UNVERIFIABLE, Condition.UNREADABLE):
        return item.why
    if item.pinned:
        return "it is pinned; `rampmeter checkpoints unpin` comes first"
    if not force and item.name == found.newest_whole:
        return (
            "it is the newest whole checkpoint, and training would fall back; --force removes it all the same"
        )
    if not force and item.condition is Condition.UNCOMMITTED and item.name.attempt >= found.newest_attempt:
        return "a job may be writing it; --force removes it all the same"
    return ""


def _gone(found: Survey, item: Found, *, dry_run: bool) -> Going:
    directory = found.root.directory(item.name)
    removing = remove_leftover if item.condition is Condition.UNCOMMITTED else remove
    if dry_run:
        return Going(item=item)
    try:
        done = removing(directory, _breathe())
    except OSError as error:
        return Going(
            item=item, problem=f"could not be removed: {error.strerror}: {error.filename or directory}"
        )
    return Going(item=item, problem="" if done else "stays: it was committed or pinned meanwhile")


def _breathe() -> Callable[[], None]:
    clock = SystemClock()
    return lambda: clock.sleep(PAUSE_S)


# -- prune -------------------------------------------------------------------------------------------------------


def _prune_arguments(parser: argparse.ArgumentParser) -> None:
    add_root(parser)
    parser.add_argument("--keep", type=int, metavar="N", help="so many of the newest")
    parser.add_argument(
        "--keep-days",
        type=int,
        metavar="N",
        help="the last one of each of so many days on which there are any",
    )
    parser.add_argument(
        "--milestone-steps",
        type=int,
        metavar="N",
        help="the first one at or after each multiple of so many steps; 0 = no milestones",
    )
    add_dry_run(parser)
    add_json(parser)


def _prune(args: argparse.Namespace) -> int:
    root = read_root(args.root)
    keep = _keep(args, read_keep(root))
    found = survey(root)
    for item in found.found:
        if item.condition is Condition.NEWER_FORMAT:
            raise ConfigError(f"nothing is removed: {item.name}: {item.why}")
    reasons = why_kept(
        [_kept(item) for item in found.found if item.condition is Condition.WHOLE or item.was_read], keep
    )
    going = [item for item in reversed(found.found) if _goes(found, item, reasons)]
    gone = [_gone(found, item, dry_run=args.dry_run) for item in going]
    _print(args, found, gone, reasons, _swept(root, dry_run=args.dry_run))
    return _code(gone)


def _swept(root: Root, *, dry_run: bool) -> list[Path]:
    """Temporary files that killed processes left, below the root. Looked at twice before they go."""
    try:
        old = old_temporaries(root)
    except OSError as error:
        raise ConfigError(f"{root.path} cannot be read: {error.strerror}: {error.filename}") from None
    if old and not dry_run:
        SystemClock().sleep(_LOOK_AGAIN_S)
        old = sweep_temporaries(root, set(old), _breathe())
    return [path.relative_to(root.path) for path in sorted(old)]


def _keep(args: argparse.Namespace, recorded: Keep | None) -> Keep:
    """What the call says, for the rest what the job of this root keeps."""
    if recorded is None and args.keep is None:
        raise ConfigError(
            "option --keep: no job has recorded under this root what it keeps; say how many stay"
        )
    base = recorded or Keep()
    milestone_steps = base.milestone_steps if args.milestone_steps is None else args.milestone_steps or None
    try:
        return Keep(
            keep=base.keep if args.keep is None else args.keep,
            keep_days=base.keep_days if args.keep_days is None else args.keep_days,
            milestone_steps=milestone_steps,
        )
    except ConfigError as error:
        raise ConfigError(f"option --{str(error).replace('_', '-')}") from None


def _kept(item: Found) -> Kept:
    assert item.manifest is not None
    return Kept(
        name=item.name,
        day=day_of(item.manifest),
        pinned=item.pinned,
        proven=item.proven,
        left_behind=item.left_behind,
        damaged=item.was_read,
    )


def _goes(found: Survey, item: Found, reasons: dict[StepName, list[Reason]]) -> bool:
    if item.condition is Condition.UNCOMMITTED:
        return item.name.attempt < found.newest_attempt
    if item.condition is Condition.HALF_REMOVED:
        return True
    return reasons.get(item.name) == []


# -- both --------------------------------------------------------------------------------------------------------


def _code(gone: Sequence[Going]) -> int:
    return WRONG if any(going.problem for going in gone) else FINE


def _print(
    args: argparse.Namespace,
    found: Survey,
    gone: Sequence[Going],
    reasons: dict[StepName, list[Reason]],
    temporaries: Sequence[Path],
) -> None:
    if args.json:
        answer = _as_json(args, found, gone, reasons)
        print_answer(as_json(answer | {"temporaries": [str(path) for path in temporaries]}))
        return
    done = "would go" if args.dry_run else "removed"
    rows = [(str(name), "stays", ", ".join(why)) for name, why in reasons.items() if why]
    rows += [(str(going.item.name), *_told(going, done)) for going in gone]
    rows += [(str(path), done, "temporary file") for path in temporaries]
    print_answer("".join(f"{line}\n" for line in table(rows)) if rows else "nothing to remove\n")
    for going in gone:
        if going.problem:
            say(f"{going.item.name} {going.problem}")


def _told(going: Going, done: str) -> tuple[str, str]:
    kind = "" if going.item.condition is Condition.WHOLE else going.item.condition.replace("_", " ")
    return ("not removed", kind) if going.problem else (done, kind)


def _as_json(
    args: argparse.Namespace,
    found: Survey,
    gone: Sequence[Going],
    reasons: dict[StepName, list[Reason]],
) -> dict[str, object]:
    return {
        "root": str(found.root.path),
        "dry_run": args.dry_run,
        "removed": [str(going.item.name) for going in gone if not going.problem],
        "problems": {str(going.item.name): going.problem for going in gone if going.problem},
        "kept": {str(name): why for name, why in reasons.items() if why},
    }


RM = Verb(
    name="rm",
    summary="remove a checkpoint",
    help="""\
Remove checkpoints, or leftovers that are named by their directory. The newest
whole one is not removed unless that is forced, a pinned one not at all.

Example:
  rampmeter checkpoints rm /lustre/run7 40000 --dry-run
""",
    add_arguments=_rm_arguments,
    run=_rm,
)

PRUNE = Verb(
    name="prune",
    summary="remove what retention lets go, and what crashes left behind",
    help="""\
Remove what retention lets go, and what crashes left behind. The job records
under its root what it keeps; options say otherwise. Always stay: the newest,
pinned ones, and the newest one that is proven to be whole. Damaged ones do not
count; those with files missing or short do not go either: `rm` removes them.
What was left behind by going back to an older step by name has the places that
the newer history has not taken yet.

Example:
  rampmeter checkpoints prune /lustre/run7 --keep 5 --dry-run
""",
    add_arguments=_prune_arguments,
    run=_prune,
)
