"""`rm` and `prune`: what goes, what stays, and what is refused before anything goes."""

import os

import pytest

from rampmeter.core.clock import SystemClock
from rampmeter.core.errors import ConfigError
from rampmeter.layout import MANIFEST_NAME, Root
from rampmeter.marks import Mark, put_mark
from rampmeter.removal import DELETING_NAME
from rampmeter.retention import Keep, write_keep
from rampmeter.rollback import Choice, note_choice
from support.roots import change_manifest, put_commit, put_leftover, steps_in


def test_rm_removes_what_it_is_told(root: Root, checkpoints) -> None:
    """One or several; with --dry-run nothing, but it is said."""
    names = [put_commit(root, step) for step in (1, 2, 3)]
    code, text = checkpoints("rm", root.path, 1, 2, "--dry-run")
    assert code == 0
    assert text.splitlines() == [f"{names[0]}  would go", f"{names[1]}  would go"]
    assert steps_in(root) == [3, 2, 1]
    code, found = checkpoints("rm", root.path, 1, names[1], as_json=True)
    assert (code, found["removed"], found["dry_run"]) == (0, [str(names[0]), str(names[1])], False)
    assert root.step_names() == [names[2]]


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_the_newest_whole_one_goes_only_if_forced(root: Root, checkpoints, force) -> None:
    """The newest by size-checked content, not by name: a damaged newer one does not count."""
    names = [put_commit(root, step) for step in (1, 2, 3)]
    (root.directory(names[2]) / "__0_0.distcp").unlink()
    if force:
        assert checkpoints("rm", root.path, 2, *force)[0] == 0
        assert steps_in(root) == [3, 1]
    else:
        with pytest.raises(ConfigError, match=r"step-00000002.*newest whole checkpoint.*--force"):
            checkpoints("rm", root.path, 1, 2)
        assert steps_in(root) == [3, 2, 1]
    assert checkpoints("rm", root.path, 3)[0] == 0


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_pinned_and_newer_ones_are_never_removed(root: Root, checkpoints, force) -> None:
    """Not even if forced; what has to come first is named."""
    names = [put_commit(root, step) for step in (1, 2, 3)]
    put_mark(root.directory(names[0]), Mark.PINNED)
    change_manifest(root, names[1], format=2)
    with pytest.raises(ConfigError, match="pinned; `rampmeter checkpoints unpin` comes first"):
        checkpoints("rm", root.path, 1, *force)
    with pytest.raises(ConfigError, match="use a newer rampmeter"):
        checkpoints("rm", root.path, names[1], *force)
    assert len(root.step_names()) == 3


def test_what_a_job_may_be_writing_goes_only_if_forced(root: Root, checkpoints) -> None:
    """Uncommitted directories of the newest attempt may be alive; those of older attempts are leftovers."""
    put_commit(root, 1)
    root.claim_attempt()
    old, new = put_leftover(root, 2, 1), put_leftover(root, 3, 2)
    with pytest.raises(ConfigError, match="a job may be writing it"):
        checkpoints("rm", root.path, new)
    assert checkpoints("rm", root.path, old)[0] == 0
    assert checkpoints("rm", root.path, new, "--force")[0] == 0
    assert [name.step for name in root.step_names()] == [1]


def test_what_cannot_be_removed_is_told(root: Root, checkpoints, monkeypatch) -> None:
    """Exit code 1 and the word of the system; the others are removed."""
    names = [put_commit(root, step) for step in (1, 2, 3)]

    def refuse(directory, _breathe):
        if directory == root.directory(names[0]):
            raise PermissionError(13, "Permission denied", str(directory))
        return True

    monkeypatch.setattr("rampmeter.checkpoints.removing.remove", refuse)
    code, text = checkpoints("rm", root.path, 1, 2)
    assert code == 1
    assert f"{names[0]}  not removed" in text
    assert f"could not be removed: Permission denied: {root.directory(names[0])}" in text
    assert f"{names[1]}  removed" in text


def test_a_pin_that_came_in_between_is_told(root: Root, checkpoints, monkeypatch) -> None:
    """The listing was made before somebody pinned it: it stays, exit code 1."""
    name = put_commit(root, 1)
    put_commit(root, 2)
    monkeypatch.setattr(
        "rampmeter.checkpoints.removing._refusal",
        lambda *_args, **_options: put_mark(root.directory(name), Mark.PINNED),
    )
    code, text = checkpoints("rm", root.path, 1)
    assert code == 1
    assert "committed or pinned meanwhile" in text
    assert steps_in(root) == [2, 1]


def test_prune_does_what_the_job_would_do(root: Root, checkpoints) -> None:
    """By the job's own record; options say otherwise. Why each stays is said."""
    names = [
        put_commit(root, step, created=f"2026-11-{day}T10:00:00.000Z")
        for step, day in ((900, 27), (1100, 28), (1200, 28), (1300, 29), (1400, 30))
    ]
    write_keep(root, Keep(keep=1, keep_days=2, milestone_steps=1000))
    code, text = checkpoints("prune", root.path, "--dry-run")
    assert code == 0
    assert [line.split() for line in text.splitlines()] == [
        [str(names[4]), "stays", "last,", "daily"],
        [str(names[3]), "stays", "daily"],
        [str(names[1]), "stays", "milestone"],
        [str(names[0]), "would", "go"],
        [str(names[2]), "would", "go"],
    ]
    code, found = checkpoints("prune", root.path, "--keep-days", 0, "--milestone-steps", 0, as_json=True)
    assert code == 0
    assert found["removed"] == [str(name) for name in names[:4]]
    assert found["kept"] == {str(names[4]): ["last"]}
    assert checkpoints("prune", root.path) == (0, f"{names[4]}  stays  last, daily, milestone\n")


def test_prune_takes_leftovers_and_leaves_what_is_damaged(root: Root, checkpoints) -> None:
    """Crashes' leftovers and cut-off removals go; a damaged commit neither counts nor goes."""
    names = [put_commit(root, step) for step in (1, 2, 3, 4)]
    half = root.directory(names[0])
    (half / MANIFEST_NAME).rename(half / DELETING_NAME)
    (root.directory(names[3]) / "__0_0.distcp").unlink()
    root.claim_attempt()
    old, new = put_leftover(root, 5, 1), put_leftover(root, 6, 2)
    code, found = checkpoints("prune", root.path, "--keep", 1, as_json=True)
    assert code == 0
    assert sorted(found["removed"]) == sorted(map(str, (names[0], names[1], old)))
    assert sorted(root.step_names()) == sorted((names[2], names[3], new))


def test_prune_refuses_where_a_newer_format_stands(root: Root, checkpoints) -> None:
    """What the newer version keeps, and for whom, is not known here."""
    names = [put_commit(root, step) for step in (1, 2)]
    change_manifest(root, names[1], format=2)
    with pytest.raises(ConfigError, match=r"nothing is removed.*use a newer rampmeter"):
        checkpoints("prune", root.path, "--keep", 1)
    assert len(root.step_names()) == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "option --keep: no job has recorded"),
        (("--keep", 0), "option --keep must be an integer of at least 1"),
        (("--keep", 1, "--keep-days", -1), "option --keep-days must be"),
        (("--keep", 1, "--milestone-steps", -1), "option --milestone-steps must be"),
    ],
)
def test_prune_does_not_guess(root: Root, checkpoints, options, says: str) -> None:
    """Without a record and without --keep nothing is removed; the option at fault is named."""
    put_commit(root, 1)
    with pytest.raises(ConfigError, match=says):
        checkpoints("prune", root.path, *options)


def test_an_empty_root_has_nothing_to_remove(root: Root, checkpoints) -> None:
    """No checkpoint, no error."""
    root.path.mkdir()
    assert checkpoints("prune", root.path, "--keep", 1) == (0, "nothing to remove\n")


def test_prune_takes_old_temporary_files(root: Root, checkpoints, monkeypatch) -> None:
    """What a process that was killed two attempts ago has left; with --dry-run it is only said."""
    monkeypatch.setattr("rampmeter.checkpoints.removing._LOOK_AGAIN_S", 0.01)
    put_commit(root, 1)
    root.claim_attempt()
    old, new = (root.path / f".LATEST.{number:032x}.tmp" for number in range(2))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (1e9, 1e9))
    assert checkpoints("prune", root.path, "--keep", 1, "--dry-run", as_json=True)[1]["temporaries"] == [
        old.name
    ]
    assert checkpoints("prune", root.path, "--keep", 1)[1].splitlines()[1].split() == [
        old.name,
        "removed",
        "temporary",
        "file",
    ]
    assert [path.exists() for path in (old, new)] == [False, True]


def test_prune_looks_twice_at_a_temporary_file(root: Root, checkpoints, monkeypatch) -> None:
    """One that was renamed between the looks belonged to a living process, whatever its clock."""
    put_commit(root, 1)
    root.claim_attempt()
    file = root.path / f".LATEST.{0:032x}.tmp"
    file.write_bytes(b"whole")
    os.utime(file, (1e9, 1e9))
    monkeypatch.setattr(SystemClock, "sleep", lambda *_: file.rename(root.path / "LATEST"))
    assert checkpoints("prune", root.path, "--keep", 1, as_json=True)[1]["temporaries"] == []
    assert (root.path / "LATEST").read_bytes() == b"whole"


# -- of a history that was left behind ---------------------------------------------------------------------------


def test_of_a_history_that_was_left_behind_the_new_one_decides(root: Root, checkpoints) -> None:
    """Steps 2 and 3 were left behind for 1: `prune` lets them go first, `rm` guards 1, `ls` says so."""
    names = [put_commit(root, step) for step in (1, 2, 3)]
    root.claim_attempt()
    note_choice(root, Choice(attempt=2, name=names[0]))
    found = checkpoints("ls", root.path, as_json=True)[1]["checkpoints"]
    assert [(item["step"], item["left_behind"]) for item in found] == [(3, True), (2, True), (1, False)]
    assert "left behind" in checkpoints("ls", root.path)[1]
    with pytest.raises(ConfigError, match=r"step-00000001.*newest whole checkpoint"):
        checkpoints("rm", root.path, 1)
    found = checkpoints("prune", root.path, "--keep", 2, "--keep-days", 0, as_json=True)[1]
    assert found["kept"] == {str(names[0]): ["last"], str(names[2]): ["last"]}
    put_commit(root, 2)
    found = checkpoints("prune", root.path, "--keep", 2, "--keep-days", 0, as_json=True)[1]
    assert found["removed"] == [str(names[2])]
    assert [(name.attempt, name.step) for name in root.committed_steps()] == [(2, 2), (1, 1)]
