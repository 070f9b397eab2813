"""What was found once, and what cannot be judged: all verbs say the same of it."""

import dataclasses

import pytest

from rampmeter.core.errors import ConfigError
from rampmeter.layout import Root
from rampmeter.manifest import read_manifest
from rampmeter.marks import Mark, has_mark
from rampmeter.verification import Verifier
from support.roots import change_manifest, flip, put_commit, steps_in


def conditions(found) -> list[tuple[int, str]]:
    return [(item["step"], item["condition"]) for item in found["checkpoints"]]


def test_what_verify_has_found_is_told_by_ls_and_show_until_it_is_mended(root: Root, checkpoints) -> None:
    """With the file and the time; `verify` reads it again, and lifts it where storage gives it back whole."""
    put_commit(root, 1)
    file = root.directory(put_commit(root, 2)) / "__1_0.distcp"
    flip(file)
    checkpoints("verify", root.path)
    code, found = checkpoints("ls", root.path, as_json=True)
    assert (code, conditions(found)) == (1, [(2, "damaged"), (1, "whole")])
    assert "__1_0.distcp does not match its digest (block 0), found 20" in found["checkpoints"][0]["why"]
    assert checkpoints("show", root.path, "2", as_json=True)[1]["checkpoints"][0]["condition"] == "damaged"
    flip(file)
    assert checkpoints("verify", root.path, "2")[0] == 0
    assert checkpoints("ls", root.path)[0] == 0


def test_an_error_of_the_storage_is_no_finding(root: Root, checkpoints, monkeypatch) -> None:
    """It cannot be read now: that is said now, and nothing of it afterwards."""
    put_commit(root, 1)

    def broken(_self: Verifier) -> None:
        raise OSError(5, "Input/output error", "__0_0.distcp")

    monkeypatch.setattr(Verifier, "verify_all", broken)
    assert checkpoints("verify", root.path)[0] == 1
    assert checkpoints("ls", root.path)[0] == 0


def test_prune_and_rm_do_not_count_on_one_that_was_found_damaged(root: Root, checkpoints) -> None:
    """The newest whole one is the one before: `rm` asks for force there; `prune` keeps it, and no old damaged one."""
    names = [put_commit(root, step) for step in (1, 2, 3)]
    for name in (names[0], names[2]):
        flip(root.directory(name) / "__0_0.distcp")
    checkpoints("verify", root.path)
    with pytest.raises(ConfigError, match="newest whole"):
        checkpoints("rm", root.path, "2")
    assert checkpoints("prune", root.path, "--keep", "1", "--keep-days", "0")[0] == 0
    assert steps_in(root) == [3, 2]


def test_an_unknown_kind_of_digest_is_told_and_left_alone(root: Root, checkpoints) -> None:
    """`ls` and `verify` say what to upgrade, the others are verified, and neither `rm` nor `prune` removes it."""
    names = [put_commit(root, step) for step in (1, 2, 3)]
    files = read_manifest(root.directory(names[0])).files
    change_manifest(
        root, names[0], files=tuple(dataclasses.replace(file, algorithm="blake9") for file in files)
    )
    for verb in ("ls", "verify"):
        code, text = checkpoints(verb, root.path)
        assert code == 1
        assert "unverifiable" in text
        assert "'blake9', which this rampmeter does not know: upgrade" in " ".join(text.split())
    assert has_mark(root.directory(names[1]), Mark.PROVEN)
    with pytest.raises(ConfigError, match="blake9"):
        checkpoints("rm", root.path, "1", "--force")
    checkpoints("prune", root.path, "--keep", "1", "--keep-days", "0")
    assert steps_in(root) == [3, 1]
