"""`verify`: reads checkpoints back and compares every block with its digest. What is whole is marked as proven.

The page cache of this host is passed by, as far as the kernel lets go of it: proven is what storage gives back.
"""

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock

from rampmeter.checkpoints.selecting import select
from rampmeter.checkpoints.survey import Condition, Found, Survey, look, read_root, survey
from rampmeter.checkpoints.telling import as_json, count, foreign_advice, item_json, table, wrapped
from rampmeter.checkpoints.verb import FINE, WRONG, Verb, add_json, add_root, add_which
from rampmeter.core.clock import SystemClock
from rampmeter.core.errors import CorruptCheckpoint
from rampmeter.core.units import format_bytes, format_rate
from rampmeter.layout import Root
from rampmeter.marks import note_damaged, note_proven, note_read_back
from rampmeter.printing import print_answer
from rampmeter.progress import Bar
from rampmeter.verification import Verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What reading one checkpoint showed. `why` is empty exactly if all of it is as it was committed."""

    item: Found
    why: str


class Progress:
    """Counts bytes from several threads and shows them."""

    def __init__(self, total_bytes: int, bar: Bar | None) -> None:
        self.done_bytes = 0
        self._total_bytes = total_bytes
        self._bar = bar
        self._lock = Lock()

    def add(self, what: str, num_bytes: int) -> None:
        with self._lock:
            self.done_bytes += num_bytes
            if self._bar is not None:
                share = self.done_bytes / max(1, self._total_bytes)
                self._bar.show(
                    f"{format_bytes(self.done_bytes)} of {format_bytes(self._total_bytes)}, {what}", share
                )


@contextlib.contextmanager
def shown_progress(total_bytes: int) -> Iterator[Progress]:
    """A Progress with a bar where standard error is a terminal."""
    bar = Bar(sys.stderr) if sys.stderr is not None and sys.stderr.isatty() else None
    try:
        yield Progress(total_bytes, bar)
    finally:
        if bar is not None:
            bar.end()


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_root(parser)
    add_which(parser, count="*")
    add_json(parser)


def _verify(args: argparse.Namespace) -> int:
    root = read_root(args.root)
    found = survey(root)
    chosen = select(found, args.which) or [item for item in found.found if item.condition.is_committed]
    total_bytes = sum(item.manifest.total_bytes for item in chosen if item.manifest is not None)
    clock = SystemClock()
    begun_s = clock.now()
    with shown_progress(total_bytes) as progress:
        verdicts = [_verdict(root, item, progress.add) for item in chosen]
    bytes_per_s = progress.done_bytes / max(1e-9, clock.now() - begun_s)
    if args.json:
        told = [item_json(verdict.item) | {"verified": not verdict.why} for verdict in verdicts]
        text = as_json({"root": str(root.path), "bytes_per_s": int(bytes_per_s), "checkpoints": told})
    else:
        text = _as_text(found, verdicts, progress.done_bytes, bytes_per_s)
    print_answer(text)
    return FINE if verdicts and not any(verdict.why for verdict in verdicts) else WRONG


def _verdict(root: Root, item: Found, add: Callable[[str, int], None]) -> Verdict:
    directory = root.directory(item.name)
    if item.manifest is None or not (item.condition is Condition.WHOLE or item.was_read):
        if item.condition is Condition.DAMAGED:
            note_proven(directory, whole=False)
        return Verdict(item=item, why=item.why)
    verifier = Verifier(
        directory,
        item.manifest,
        past_cache=True,
        on_read=lambda num_bytes: add(f"step {item.name.step}", num_bytes),
    )
    try:
        verifier.verify_all()
    except (CorruptCheckpoint, OSError) as error:
        return _verdict_after(root, item, error)
    note_read_back(directory)
    return Verdict(item=look(root, item.name), why="")


def _verdict_after(root: Root, item: Found, error: CorruptCheckpoint | OSError) -> Verdict:
    """Damaged, unless a job has removed it meanwhile."""
    now = look(root, item.name)
    if now.condition is Condition.HALF_REMOVED:
        return Verdict(item=now, why="it was removed while it was read")
    if not isinstance(error, CorruptCheckpoint):
        condition, why = Condition.UNREADABLE, f"{error.strerror}: {error.filename}"
    else:
        condition, why = Condition.DAMAGED, str(error)
        note_damaged(root.directory(item.name), error)
    damaged = Found(
        name=item.name,
        condition=condition,
        why=why,
        manifest=item.manifest,
        pinned=item.pinned,
        proven=item.proven and condition is not Condition.DAMAGED,
    )
    return Verdict(item=damaged, why=why)


def _as_text(found: Survey, verdicts: Sequence[Verdict], num_bytes: int, bytes_per_s: float) -> str:
    if not verdicts:
        lines = [f"no committed checkpoint in {found.root.path}"]
        return "\n".join(lines + ([wrapped(foreign_advice(found))] if found.foreign else [])) + "\n"
    lines = table([(str(verdict.item.name), _result(verdict)) for verdict in verdicts])
    lines += [wrapped(f"{verdict.item.name}: {verdict.why}") for verdict in verdicts if verdict.why]
    num_whole = sum(not verdict.why for verdict in verdicts)
    lines.append(
        f"{num_whole} of {count(len(verdicts), 'checkpoint')} verified, "
        f"{format_bytes(num_bytes)} read at {format_rate(bytes_per_s)}"
    )
    return "\n".join(lines) + "\n"


def _result(verdict: Verdict) -> str:
    return verdict.item.condition.replace("_", " ") if verdict.why else "verified"


VERIFY = Verb(
    name="verify",
    summary="read checkpoints back and compare them with their digests",
    help="""\
Read checkpoints back and compare every block with the digest of its commit:
all committed ones, or those that are named. What is whole is marked as proven;
the newest proven one is never removed by a job or by `prune`. What is damaged is
marked as that, for `ls` and for retention, until it is read back whole.

Example:
  rampmeter checkpoints verify /lustre/run7 newest
""",
    add_arguments=_arguments,
    run=_verify,
)
