"""Retention: the newest stays, whatever else happens; days, milestones, pins and proofs stay beside it."""

import random
from pathlib import Path

import pytest

from rampmeter.core.errors import ConfigError
from rampmeter.layout import MANIFEST_NAME, Root, StepName
from rampmeter.marks import Mark, put_mark
from rampmeter.removal import DELETING_NAME, WITHDRAWN_NAME
from rampmeter.retention import Keep, Kept, Reason, prune, read_keep, sweep, why_kept, write_keep
from support.roots import change_manifest, nothing, put_commit, put_leftover, steps_in


def only(keep: int) -> Keep:
    """So many of the newest and nothing else."""
    return Keep(keep=keep, keep_days=0)


def kept(
    step: int, *, attempt: int = 1, day: str = "2026-11-30", pinned: bool = False, proven: bool = False
) -> Kept:
    return Kept(
        name=StepName(step=step, attempt=attempt, nonce="0" * 8), day=day, pinned=pinned, proven=proven
    )


def staying(commits: list[Kept], **keep) -> dict[int, list[str]]:
    """Steps that stay, and why."""
    reasons = why_kept(commits, Keep(**({"keep": 1, "keep_days": 0} | keep)))
    return {name.step: [str(reason) for reason in why] for name, why in reasons.items() if why}


# -- which ones -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "keep", "expected"),
    [
        ((9900, 10_000, 10_100), 2, [10_100, 10_000]),
        ((0, 5, 10**9), 1, [10**9]),
        ((1, 2), 3, [2, 1]),
    ],
)
def test_the_newest_stay_and_steps_are_numbers(root: Root, steps, keep: int, expected) -> None:
    """Of 9900, 10000 and 10100 the last two stay; step 0 and step 10^9 are ordinary steps."""
    for step in steps:
        put_commit(root, step)
    removed = prune(root, only(keep), nothing)
    assert steps_in(root) == expected
    assert sorted(name.step for name in removed) == sorted(set(steps) - set(expected))


def test_a_newer_attempt_counts_before_a_higher_step(root: Root) -> None:
    """What a stopped attempt wrote last goes before what the current one wrote."""
    put_commit(root, 200)
    root.claim_attempt()
    put_commit(root, 50)
    prune(root, only(1), nothing)
    assert steps_in(root) == [50]


def test_the_last_one_of_each_day_stays() -> None:
    """One for each of so many days on which there are any, the newest days first; days without one do not count."""
    commits = [
        kept(10, day="2026-11-20"),
        kept(11, day="2026-11-20"),
        kept(20, day="2026-11-28"),
        kept(30, day="2026-11-29"),
        kept(31, day="2026-11-29"),
        kept(40, day="2026-11-30"),
        kept(41, day="2026-11-30"),
    ]
    assert staying(commits, keep_days=3) == {41: ["last", "daily"], 31: ["daily"], 20: ["daily"]}
    assert staying(commits, keep_days=9) == {
        41: ["last", "daily"],
        31: ["daily"],
        20: ["daily"],
        11: ["daily"],
    }
    assert staying(commits) == {41: ["last"]}


def test_milestones_stay_for_ever() -> None:
    """The first one at or after each multiple of so many steps; the time before the first multiple has none."""
    commits = [kept(step) for step in (10, 990, 1003, 1500, 2999, 3000, 3001, 3500)]
    assert staying(commits, milestone_steps=1000) == {
        3500: ["last"],
        3000: ["milestone"],
        2999: ["milestone"],
        1003: ["milestone"],
    }


def test_of_two_attempts_at_a_milestone_the_newer_counts() -> None:
    """A job that fell back and came by the same step again keeps the step that the new history holds."""
    commits = [kept(1000), kept(1500), kept(1000, attempt=2), kept(1600, attempt=2)]
    reasons = why_kept(commits, Keep(keep=1, keep_days=0, milestone_steps=1000))
    assert [(name.attempt, name.step) for name, why in reasons.items() if why] == [(2, 1600), (2, 1000)]


def test_pinned_ones_and_the_newest_proven_one_stay() -> None:
    """All that are pinned; of those that were read back whole only the newest."""
    commits = [kept(1, pinned=True), kept(2, proven=True), kept(3, proven=True), kept(4), kept(5)]
    assert staying(commits) == {5: ["last"], 3: ["proven"], 1: ["pinned"]}


@pytest.mark.parametrize("seed", range(30))
def test_a_run_of_any_shape_keeps_what_was_promised(seed: int) -> None:
    """Pruned after every commit, a run ends with what pruning once at its end leaves, and is never above its bound.

    So nothing that was let go is missed by a later round, and what is neither of a day nor a milestone nor pinned is at
    most keep + 1 (the proven one), + 1 while the next is written: keep + 2.
    """
    draw = random.Random(seed)
    keep = Keep(keep=draw.randint(1, 4), keep_days=draw.randint(0, 3), milestone_steps=draw.choice([None, 7]))
    there: list[Kept] = []
    everything: list[Kept] = []
    attempt, step, day = 1, 0, 1
    for _ in range(60):
        step += draw.randint(1, 5)
        day = min(30, day + (draw.random() < 0.2))
        new = kept(
            step,
            attempt=attempt,
            day=f"2026-11-{day:02}",
            pinned=draw.random() < 0.05,
            proven=draw.random() < 0.1,
        )
        there.append(new)
        everything.append(new)
        reasons = why_kept(there, keep)
        there = [commit for commit in there if reasons[commit.name]]
        assert new in there
        plain = [why for why in reasons.values() if why and set(why) <= {Reason.LAST, Reason.PROVEN}]
        assert len(plain) <= keep.keep + 1
        proven = [commit for commit in everything if commit.proven]
        assert not proven or proven[-1] in there
    at_once = why_kept(everything, keep)
    assert {commit.name for commit in there} == {name for name, why in at_once.items() if why}


@pytest.mark.parametrize(
    ("keep", "says"),
    [
        ({"keep": 0}, "keep must be an integer of at least 1"),
        ({"keep": -1}, "keep must"),
        ({"keep": True}, "keep must"),
        ({"keep_days": -1}, "keep_days must be an integer of at least 0"),
        ({"milestone_steps": 0}, "milestone_steps must be an integer of at least 1"),
    ],
)
def test_keeping_nothing_is_refused(keep, says: str) -> None:
    """A count that keeps nothing is a mistake, and named."""
    with pytest.raises(ConfigError, match=says):
        Keep(**keep)


# -- on disk ----------------------------------------------------------------------------------------------------


def test_marks_on_disk_are_seen(root: Root) -> None:
    """A pinned and a proven checkpoint stay beside the newest."""
    names = [put_commit(root, step) for step in range(1, 6)]
    put_mark(root.directory(names[0]), Mark.PINNED)
    put_mark(root.directory(names[2]), Mark.PROVEN)
    prune(root, only(1), nothing)
    assert steps_in(root) == [5, 3, 1]


def test_days_on_disk_are_those_of_the_manifest(root: Root) -> None:
    """The day is the UTC date at which it was committed."""
    for step, created in ((1, "2026-11-28T23:59:59.999Z"), (2, "2026-11-29T00:00:00.000Z")):
        put_commit(root, step, created=created)
    put_commit(root, 3, created="2026-11-30T12:00:00.000Z")
    prune(root, Keep(keep=1, keep_days=2), nothing)
    assert steps_in(root) == [3, 2]


def test_a_manifest_is_read_once(root: Root) -> None:
    """What was seen in an earlier round is not read again: a fleet's manifests are long."""
    days: dict[StepName, str] = {}
    put_commit(root, 1)
    prune(root, only(3), nothing, days=days)
    (root.directory(root.committed_steps()[0]) / MANIFEST_NAME).chmod(0)
    put_commit(root, 2)
    prune(root, only(1), nothing, days=days)
    assert steps_in(root) == [2]


def test_a_failed_deletion_is_logged(root: Root, monkeypatch, caplog) -> None:
    """A checkpoint that cannot be removed does not disturb the others."""
    for step in (1, 2, 3):
        put_commit(root, step)
    rename = Path.rename

    def refuse(self: Path, target):
        if "step-00000001" in str(self):
            raise PermissionError(13, "Permission denied")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    assert [name.step for name in prune(root, only(1), nothing)] == [2]
    assert "step-00000001" in caplog.text


def test_a_root_that_cannot_be_read_loses_nothing(root: Root, monkeypatch, caplog) -> None:
    """Not permitted to look: nothing is removed, nothing is raised."""
    put_commit(root, 1)

    def refuse(_self: Root):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Root, "step_names", refuse)
    assert prune(root, only(1), nothing) == []
    assert sweep(root, 9, nothing) == []
    assert "cannot look" in caplog.text


def test_unreadable_manifests_neither_count_nor_go(root: Root) -> None:
    """A damaged newest checkpoint does not push out the last whole one."""
    names = [put_commit(root, step) for step in (1, 2, 3)]
    (root.directory(names[-1]) / MANIFEST_NAME).write_bytes(b"{")
    prune(root, only(1), nothing)
    assert steps_in(root) == [3, 2]


def test_newer_formats_are_left_alone(root: Root) -> None:
    """What a newer version wrote is not ours to delete."""
    names = [put_commit(root, step) for step in (1, 2, 3)]
    change_manifest(root, names[0], format=2)
    prune(root, only(1), nothing)
    assert steps_in(root) == [3, 1]


# -- sweeping ---------------------------------------------------------------------------------------------------


def test_sweep_takes_only_own_old_uncommitted_directories(root: Root) -> None:
    """Commits, what this attempt or a newer one is writing, and foreign directories are not swept."""
    put_commit(root, 1)
    names = [put_leftover(root, 9, attempt) for attempt in (1, 2, 3)]
    (root.path / "logs").mkdir()
    assert sweep(root, 2, nothing) == [names[0]]
    assert {str(names[1]), str(names[2]), "logs"} <= {path.name for path in root.path.iterdir()}
    assert steps_in(root) == [1]


@pytest.mark.parametrize("token", [WITHDRAWN_NAME, DELETING_NAME])
def test_sweep_finishes_what_was_cut_off(root: Root, token: str) -> None:
    """A deletion that was killed is finished by whoever comes next, of whatever attempt it was."""
    names = [put_commit(root, step) for step in (1, 2)]
    directory = root.directory(names[0])
    (directory / MANIFEST_NAME).rename(directory / token)
    assert sweep(root, 1, nothing) == [names[0]]
    assert root.step_names() == [names[1]]


def test_a_pinned_one_whose_deletion_was_cut_off_comes_back(root: Root) -> None:
    """Killed between taking the manifest away and looking for a pin: the next sweep puts it back."""
    name = put_commit(root, 1)
    directory = root.directory(name)
    put_mark(directory, Mark.PINNED)
    (directory / MANIFEST_NAME).rename(directory / WITHDRAWN_NAME)
    assert sweep(root, 1, nothing) == []
    assert steps_in(root) == [1]


def test_nothing_is_swept_where_a_newer_format_stands(root: Root, caplog) -> None:
    """A half checkpoint to us may be a whole one to a newer version."""
    change_manifest(root, put_commit(root, 1), format=2)
    put_leftover(root, 2, 1)
    assert sweep(root, 5, nothing) == []
    assert "newer rampmeter" in caplog.text
    assert len(root.step_names()) == 2


# -- the record -------------------------------------------------------------------------------------------------


def test_what_a_job_keeps_is_recorded(root: Root) -> None:
    """For whoever prunes by hand; a root without record says so, a damaged one is refused by name."""
    root.path.mkdir()
    assert read_keep(root) is None
    keep = Keep(keep=5, keep_days=2, milestone_steps=1000)
    write_keep(root, keep)
    assert read_keep(root) == keep
    (root.path / "retention.json").write_text('{"keep": 0, "keep_days": 1, "milestone_steps": null}')
    with pytest.raises(ConfigError, match=r"retention\.json cannot be understood"):
        read_keep(root)
