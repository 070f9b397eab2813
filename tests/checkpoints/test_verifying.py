"""`verify`: every byte of every file counts, and what is whole is remembered."""

import io
import sys
from pathlib import Path

import pytest

from rampmeter.core.errors import ConfigError
from rampmeter.layout import Root
from rampmeter.marks import Mark, has_mark, put_mark
from rampmeter.retention import Keep, prune
from rampmeter.verification import Verifier
from support.roots import change_manifest, flip, nothing, put_commit, put_leftover


def test_whole_ones_are_verified_and_proven(root: Root, checkpoints) -> None:
    """All committed ones; leftovers are no matter. From then on retention keeps the newest of them."""
    names = [put_commit(root, step) for step in (1, 2)]
    put_leftover(root, 3, 1)
    code, text = checkpoints("verify", root.path)
    assert code == 0
    assert "2 of 2 checkpoints verified, 18 KB read at " in text
    assert all(has_mark(root.directory(name), Mark.PROVEN) for name in names)
    put_commit(root, 4)
    put_commit(root, 5)
    prune(root, Keep(keep=1, keep_days=0), nothing)
    assert [name.step for name in root.committed_steps()] == [5, 2]


@pytest.mark.parametrize("file", ["__0_0.distcp", "__1_0.distcp", ".metadata", "BLOCKS"])
def test_a_flipped_bit_is_found(root: Root, checkpoints, file: str) -> None:
    """Sizes are right and `ls` is content; `verify` names the file, and the other checkpoint is verified."""
    names = [put_commit(root, step) for step in (1, 2)]
    flip(root.directory(names[1]) / file)
    assert checkpoints("ls", root.path)[0] == 0
    code, text = checkpoints("verify", root.path)
    assert code == 1
    assert f"{names[1]}: file {file} does not match its digest" in " ".join(text.split())
    assert "1 of 2 checkpoints verified" in text
    assert not has_mark(root.directory(names[1]), Mark.PROVEN)
    code, found = checkpoints("verify", root.path, "1", as_json=True)
    assert code == 0
    assert [(item["step"], item["verified"], item["proven"]) for item in found["checkpoints"]] == [
        (1, True, True)
    ]
    code, found = checkpoints("verify", root.path, "newest", as_json=True)
    assert (code, found["checkpoints"][0]["verified"], found["checkpoints"][0]["condition"]) == (
        1,
        False,
        "damaged",
    )


@pytest.mark.parametrize("damage", [flip, Path.unlink])
def test_what_was_proven_once_and_is_damaged_now_is_proven_no_longer(root: Root, checkpoints, damage) -> None:
    """Else retention would keep it as the one that is sure, and let a whole one go."""
    names = [put_commit(root, step) for step in (1, 2)]
    assert checkpoints("verify", root.path)[0] == 0
    damage(root.directory(names[1]) / "__0_0.distcp")
    assert checkpoints("verify", root.path)[0] == 1
    assert not has_mark(root.directory(names[1]), Mark.PROVEN)
    put_commit(root, 3)
    prune(root, Keep(keep=1, keep_days=0), nothing)
    assert [name.step for name in root.committed_steps()] == [3, 1]


def test_an_error_of_the_storage_is_no_damage(root: Root, checkpoints, monkeypatch) -> None:
    """What cannot be read is called unreadable, with the word of the system."""
    put_commit(root, 1)

    def broken(_self: Verifier) -> None:
        raise OSError(5, "Input/output error", "__0_0.distcp")

    monkeypatch.setattr(Verifier, "verify_all", broken)
    code, text = checkpoints("verify", root.path)
    assert code == 1
    assert "unreadable" in text
    assert "Input/output error: __0_0.distcp" in text


def test_nothing_to_verify_is_not_fine(root: Root, checkpoints) -> None:
    """A script that starts training only if it verifies must not start on nothing."""
    (root.path / "step_500").mkdir(parents=True)
    code, text = checkpoints("verify", root.path)
    assert code == 1
    assert "no committed checkpoint" in text
    assert "adopt" in text


def test_a_newer_format_is_not_verified(root: Root, checkpoints) -> None:
    """It is named and not called verified, and nothing in it is touched."""
    name = put_commit(root, 1)
    put_mark(root.directory(name), Mark.PROVEN)
    change_manifest(root, name, format=2)
    code, text = checkpoints("verify", root.path)
    assert code == 1
    assert "use a newer rampmeter" in " ".join(text.split())
    assert has_mark(root.directory(name), Mark.PROVEN)


def test_an_unknown_digest_is_a_matter_of_this_machine(root: Root, checkpoints, monkeypatch) -> None:
    """Without xxhash nothing is called damaged; the message says what to install."""
    put_commit(root, 1)
    monkeypatch.setattr("rampmeter.hashing.xxhash", None)
    with pytest.raises(ConfigError, match="pip install xxhash"):
        checkpoints("verify", root.path)


def test_a_root_that_is_only_to_be_read_is_verified_all_the_same(
    root: Root, checkpoints, monkeypatch
) -> None:
    """The proof cannot be noted, and the answer stands."""
    name = put_commit(root, 1)

    def read_only(*_args) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("rampmeter.marks.put_mark", read_only)
    assert checkpoints("verify", root.path)[0] == 0
    assert not has_mark(root.directory(name), Mark.PROVEN)


def test_one_that_a_job_removes_meanwhile_is_not_called_damaged(root: Root, checkpoints, monkeypatch) -> None:
    """Retention of the live job went by: said so, exit code 1, since it was not verified."""
    put_commit(root, 1)
    put_commit(root, 2)
    verify = Verifier.verify_all

    def removed_first(self: Verifier) -> None:
        prune(root, Keep(keep=1, keep_days=0), nothing)
        verify(self)

    monkeypatch.setattr(Verifier, "verify_all", removed_first)
    code, text = checkpoints("verify", root.path, "1")
    assert code == 1
    assert "half removed" in text
    assert "removed while it was read" in text
    assert "damaged" not in text


def test_a_terminal_sees_how_far_it_is(root: Root, checkpoints, monkeypatch) -> None:
    """On a terminal a bar on standard error, which is gone at the end; elsewhere none."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    put_commit(root, 1)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert checkpoints("verify", root.path)[0] == 0
    assert "9 KB of 9 KB, step 1" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r")
