"""Kills at every file operation and at random instants: restore gives exactly one committed step, bit for bit.

After each kill discovery, `rampmeter checkpoints ls` and `verify` agree; the next start sweeps, saves, and holds no
more than what is kept and two.
"""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rampmeter.layout import Root
from support import crash_victim
from support.crash_check import check_recovered, check_root
from support.crash_lives import (
    Life,
    copy_of,
    killed_after,
    numbers_worth_a_kill,
    ranks_killed_after,
    trace_of,
)
from support.crash_victim import KEEP, SIZE_BYTES, Told
from support.forked import Nursery, nursery
from support.points import BEGIN

pytestmark = pytest.mark.timeout(600)

MAX_STATES = KEEP + 2
NUM_INSTANTS = 20
KILLED = -9
COMMIT = "rename MANIFEST.json"
CHANGES = ("mkdir", "write", "rename", "rmdir")
BARE = Life(kind="bare")
WHOLE = Life(kind="whole", again=True)
RANKS = Life(kind="two_ranks", again=True)

START = "link JOB_UID, link claim, rename retention.json, link PROVEN, rename plan.json, remove plan.json"
SAVE = (
    "mkdir step, write __0_0.distcp, sync __0_0.distcp, rename .metadata, rename BLOCKS, rename MANIFEST.json"
)
AFTER = "rename LATEST, link PINNED, remove PINNED, rename MANIFEST.withdrawn, rename MANIFEST.deleting"
REMOVAL = "remove .metadata, remove BLOCKS, remove __0_0.distcp, remove MANIFEST.deleting, rmdir step"
MUST_BE_SEEN = set(f"{START}, {SAVE}, {AFTER}, {REMOVAL}".split(", "))


@pytest.fixture(scope="module")
def victims() -> Iterator[Nursery]:
    torch.set_num_threads(1)
    with nursery() as found:
        yield found


@pytest.fixture(scope="module")
def template(victims: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root whose first attempt has made two saves."""
    path = tmp_path_factory.mktemp("template") / "root"
    assert Life(kind="bare", num_saves=2).start(victims, Root(path), "trace({path})").wait() == 0
    return path


@pytest.fixture(scope="module")
def traces(
    victims: Nursery, template: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[Life, list[str]]:
    where = tmp_path_factory.mktemp("traces")
    return {
        life: trace_of(victims, copy_of(template if life.again else where / "none", where / life.kind), life)
        for life in (BARE, WHOLE)
    }


def test_the_operations_that_matter_are_all_seen(traces: dict[Life, list[str]]) -> None:
    """Else a kill would miss them without a word."""
    seen = {name for trace in traces.values() for name in trace}
    assert seen >= MUST_BE_SEEN


@pytest.mark.parametrize("life", [BARE, WHOLE], ids=["saver", "checkpointer"])
def test_a_kill_before_every_file_operation(
    victims: Nursery, template: Path, traces: dict[Life, list[str]], life: Life, tmp_path: Path
) -> None:
    """Up to the manifest's rename the step before counts, from there on this one; the next start goes on from it."""
    trace = traces[life]
    source = template if life.again else tmp_path / "none"
    before, num_kills = 2 if life.again else 0, 0
    numbers = numbers_worth_a_kill(trace)
    for number in numbers:
        root = copy_of(source, tmp_path / str(number))
        program = life.start(victims, root, f"end_at({{path}}, {number})")
        code, told = program.wait(), Told.of(program.lines)
        if code == 0 and life is WHOLE:
            continue  # it has several threads, and may find less to do this time
        assert code == KILLED, (trace[number], program.lines)
        num_kills += 1
        step = check_root(root, told, before=before)
        if life is BARE:
            assert step == before + (number > trace.index(COMMIT)), trace[number]
        life.recover(victims, root)
        assert (crash_victim.restored_step(root) or 0) > step, trace[number]
        check_recovered(root, MAX_STATES, SIZE_BYTES)
    assert num_kills > 0.9 * len(numbers)


def test_kills_at_random_instants(victims: Nursery, tmp_path: Path) -> None:
    """Twenty in a row under one root: one whole step, never before the last one that was told as committed."""
    draw, root = random.Random(2026), Root(tmp_path / "root")
    life, step, num_committed = Life(kind="whole", num_saves=0), 0, 0
    for _ in range(NUM_INSTANTS):
        program = life.start(victims, root)
        told = killed_after(program, draw.uniform(0.0, 0.1), num_lines=draw.randrange(5))
        step = check_root(root, told, before=step)
        num_committed += told.committed > 0
    assert num_committed > 5
    life.recover(victims, root)
    check_recovered(root, MAX_STATES, SIZE_BYTES)


@pytest.mark.system
def test_a_kill_of_rank_0_before_the_operations_of_a_commit(victims: Nursery, tmp_path: Path) -> None:
    """The other rank goes by itself and commits nothing: the step before counts up to the manifest's rename.

    Before all that makes, fills or names a file; the operations between are the same for one rank.
    """
    template, num_kills = tmp_path / "template", 0
    assert replace(RANKS, num_saves=2).start(victims, Root(template)).wait() == 0
    before = crash_victim.restored_step(Root(template)) or 0
    trace = one_save_of(trace_of(victims, copy_of(template, tmp_path / "trace"), RANKS))
    assert COMMIT in trace
    numbers = [number for number in numbers_worth_a_kill(trace) if trace[number].split()[0] in CHANGES]
    for number in numbers:
        root, name = copy_of(template, tmp_path / str(number)), trace[number]
        arm = f"end_in_save({{path}}, {name!r}, {trace[: number + 1].count(name)})"
        program = RANKS.start(victims, root, arm)
        if program.wait() == 0:
            continue  # it has several threads, and has found less to do this time
        num_kills += 1
        step = check_root(root, Told.of(program.lines), before=before)
        assert (step > before) is (number > trace.index(COMMIT)), name
        (RANKS if number == numbers[-1] else WHOLE).recover(victims, root)
        assert (crash_victim.restored_step(root) or 0) > step, name
        check_recovered(root, MAX_STATES, SIZE_BYTES)
    assert num_kills > 0.8 * len(numbers)


def one_save_of(trace: list[str]) -> list[str]:
    """The operations from the first save on, to the one after it."""
    begin = trace.index(BEGIN)
    end = trace.index(BEGIN, begin + 1) if BEGIN in trace[begin + 1 :] else None
    return trace[begin:end]


@pytest.mark.system
@pytest.mark.parametrize(
    ("kind", "num_kills", "num_lines"), [("two_ranks", NUM_INSTANTS, 2), ("two_ranks_process", 6, 5)]
)
def test_kills_of_two_ranks(
    victims: Nursery, tmp_path: Path, kind: str, num_kills: int, num_lines: int
) -> None:
    """All at once or one before the other, whichever: the ranks' shares that come back are of one step.

    Also where processes beside them write, which may finish what they have begun; they are there after five lines.
    """
    draw, root = random.Random(2026), Root(tmp_path / "root")
    life, step, num_committed = Life(kind=kind, num_saves=0), 0, 0
    for number in range(num_kills):
        program = life.start(victims, root)
        told = ranks_killed_after(
            program,
            draw.uniform(0.0, 0.1),
            first=(None, 0, 1)[number % 3],
            apart_s=draw.uniform(0.0, 0.3),
            num_lines=num_lines + draw.randrange(8),
        )
        step = check_root(root, told, before=step)
        num_committed += told.committed > 0
    assert num_committed > num_kills / 4
    life.recover(victims, root)
    check_recovered(root, MAX_STATES, SIZE_BYTES)
    assert root.committed_steps()[0].step > step


@pytest.mark.parametrize("life", [BARE, WHOLE], ids=["saver", "checkpointer"])
def test_what_counts_is_durable_before_it_counts(traces: dict[Life, list[str]], life: Life) -> None:
    """A power cut loses what was not synced: files before they get their names, names before the manifest's."""
    trace = traces[life]
    for number, operation in enumerate(trace):
        verb, name = operation.split()
        temporary = f".{name.lstrip('.')}.tmp"
        if verb not in ("rename", "link") or f"write {temporary}" not in trace:
            continue
        last_write = _last_before(trace, number, f"write {temporary}")
        assert last_write < _last_before(trace, number, f"sync {temporary}"), operation
    commit = trace.index(COMMIT)
    shard_synced = _last_before(trace, commit, "sync __0_0.distcp")
    assert _last_before(trace, commit, "write __0_0.distcp") < shard_synced
    assert _last_before(trace, commit, "rename .metadata") < _last_before(trace, commit, "sync step")
    assert _last_before(trace, commit, "mkdir step") < _last_before(trace, commit, "sync root")
    assert trace[commit + 1] == "sync step"


def _last_before(trace: list[str], number: int, operation: str) -> int:
    return max(index for index in range(number) if trace[index] == operation)
