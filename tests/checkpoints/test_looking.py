"""`ls` and `show`: every kind of directory has its name, and nothing is ever a traceback."""

import pytest

import rampmeter.checkpoints.survey as module
from rampmeter.core.errors import ConfigError
from rampmeter.layout import MANIFEST_NAME, Root
from rampmeter.manifest import KeyNorm
from rampmeter.marks import Mark, put_mark
from rampmeter.removal import DELETING_NAME
from support.roots import change_manifest, flip, put_commit, put_leftover


def test_whole_ones_are_listed_newest_first(root: Root, checkpoints) -> None:
    """Directory, state, day and size, with marks; sizes are decimal, days UTC."""
    names = [put_commit(root, step, created=f"2026-11-0{step}T10:00:00.000Z") for step in (1, 2)]
    put_mark(root.directory(names[0]), Mark.PINNED)
    code, text = checkpoints("ls", root.path)
    assert code == 0
    lines = text.splitlines()
    assert lines[0] == f"{root.path}: job run7, 2 checkpoints, 18 KB"
    assert lines[3].split() == [str(names[1]), "whole", "2026-11-02", "10:00", "9", "KB"]
    assert lines[4].split()[-1] == "pinned"
    assert max(map(len, lines[2:])) <= 80


def _damages(root: Root) -> dict[str, str]:
    """One root with all that can stand in one; what is said of each step."""
    put_commit(root, 1)
    told = {}
    for step, (what, says) in enumerate(
        [
            (lambda d: (d / "__1_0.distcp").write_bytes(b"x" * 2999), "file __1_0.distcp is 1 byte short"),
            (lambda d: (d / "__1_0.distcp").unlink(), "file __1_0.distcp is missing"),
            (lambda d: (d / "BLOCKS").write_bytes(b""), "file BLOCKS is"),
            (lambda d: (d / MANIFEST_NAME).write_bytes(b"{"), "MANIFEST.json is not JSON"),
            (lambda d: (d / MANIFEST_NAME).write_bytes(b""), "MANIFEST.json is not JSON"),
            (lambda d: flip(d / MANIFEST_NAME), "MANIFEST.json"),
            (lambda d: (d / MANIFEST_NAME).write_bytes(b"[" * 100_000), "MANIFEST.json is not JSON"),
            (lambda d: (d / MANIFEST_NAME).write_bytes(b"[]"), "MANIFEST.json is not a JSON object"),
        ],
        start=2,
    ):
        what(root.directory(put_commit(root, step)))
        told[f"step-{step:08d}"] = says
    return told


def test_each_damage_is_named(root: Root, checkpoints) -> None:
    """Truncated, deleted, emptied, flipped: which file, and what about it; exit code 1."""
    told = _damages(root)
    code, text = checkpoints("ls", root.path)
    assert code == 1
    for directory, says in told.items():
        assert any(line.startswith(directory) and says in line for line in text.splitlines()), (
            directory,
            text,
        )
    code, found = checkpoints("ls", root.path, as_json=True)
    assert code == 1
    assert [item["condition"] for item in found["checkpoints"]] == ["damaged"] * len(told) + ["whole"]
    assert found["checkpoints"][-1]["num_bytes"] == 9000


def test_what_is_no_checkpoint_is_no_damage(root: Root, checkpoints) -> None:
    """A save that is being written, a leftover, a removal that was cut off: named, exit code 0."""
    name = put_commit(root, 1)
    half = root.directory(put_commit(root, 2))
    (half / MANIFEST_NAME).rename(half / DELETING_NAME)
    put_leftover(root, 3, 1)
    code, found = checkpoints("ls", root.path, as_json=True)
    assert code == 0
    assert [item["condition"] for item in found["checkpoints"]] == ["uncommitted", "half_removed", "whole"]
    assert found["job_uid"] == root.ensure_job_uid()
    assert found["newest_attempt"] == 1
    assert found["checkpoints"][2]["directory"] == str(name)
    assert "its removal has begun" in checkpoints("ls", root.path)[1]


def test_a_newer_format_is_named(root: Root, checkpoints) -> None:
    """Neither damaged nor whole: a newer reader is needed."""
    change_manifest(root, put_commit(root, 1), format=2)
    code, text = checkpoints("ls", root.path)
    assert code == 1
    assert "newer format" in text
    assert "format 2, this reader knows 1: use a newer rampmeter" in " ".join(text.split())


def test_a_directory_that_was_renamed_by_hand_is_damaged(root: Root, checkpoints) -> None:
    """It is not what its name says."""
    name = put_commit(root, 1)
    root.directory(name).rename(root.path / "step-00000009.a00001.00000000")
    code, text = checkpoints("ls", root.path)
    assert code == 1
    assert f"belongs to {name}" in " ".join(text.split())


def test_foreign_ones_are_named_with_the_way_in(root: Root, checkpoints) -> None:
    """A root that holds another writer's checkpoints only is listed, and `adopt` is named."""
    (root.path / "checkpoint-500").mkdir(parents=True)
    code, text = checkpoints("ls", root.path)
    assert code == 0
    assert "no checkpoints" in text
    assert f"rampmeter checkpoints adopt {root.path}/checkpoint-500" in " ".join(text.split())


def test_an_empty_root_has_no_checkpoints(root: Root, checkpoints) -> None:
    """An empty directory is no error; one that is not there, or empty text, is a wrong call."""
    root.path.mkdir()
    assert checkpoints("ls", root.path) == (0, f"{root.path}: no checkpoints\n")
    for wrong, says in (
        (root.path / "not", "no such directory"),
        ("", "ROOT is empty"),
        (__file__, "no directory"),
    ):
        with pytest.raises(ConfigError, match=says):
            checkpoints("ls", wrong)


def test_unreadable_entries_are_told_apart(root: Root, checkpoints, monkeypatch) -> None:
    """An I/O error of one directory is said of that one, and the others are listed."""
    put_commit(root, 1)
    name = put_commit(root, 2)
    standing = module.standing

    def broken(directory):
        if directory == root.directory(name):
            raise OSError(5, "Input/output error", str(directory))
        return standing(directory)

    monkeypatch.setattr(module, "standing", broken)
    code, found = checkpoints("ls", root.path, as_json=True)
    assert code == 1
    assert [item["condition"] for item in found["checkpoints"]] == ["unreadable", "whole"]
    assert found["checkpoints"][0]["why"].startswith("Input/output error")


def test_show_says_everything(root: Root, checkpoints) -> None:
    """By step, by directory (also as a path that a shell completed), or as the newest."""
    name = put_commit(root, 40)
    for word in ("40", str(name), f"{root.directory(name)}/", "newest"):
        code, text = checkpoints("show", root.path, word)
        assert code == 0
        for says in (
            "run7",
            "random states, data position",
            "abc123",
            '{"lr": 0.1}',
            "torch 2.13.0",
            "xxh3_128",
        ):
            assert says in text
    code, found = checkpoints("show", root.path, "newest", as_json=True)
    assert found["checkpoints"][0]["manifest"]["files"][0]["name"] == "__0_0.distcp"


def test_norms_are_shown_where_they_were_recorded(root: Root, checkpoints) -> None:
    """To programs: by part of the state; null where the job did not ask for them."""
    put_commit(root, 1)
    put_commit(root, 2, norms=(KeyNorm(key="model", norm=12.5),))
    _, found = checkpoints("show", root.path, "1", "2", as_json=True)
    shown = {item["step"]: item["manifest"]["norms"] for item in found["checkpoints"]}
    assert shown == {1: None, 2: [{"key": "model", "norm": 12.5}]}


def test_a_step_of_several_attempts_is_ambiguous(root: Root, checkpoints) -> None:
    """Nothing is guessed: the names are listed. A leftover is only meant by its directory."""
    first = put_commit(root, 7)
    root.claim_attempt()
    second = put_commit(root, 7)
    put_leftover(root, 8, 2)
    with pytest.raises(ConfigError, match=f"name one of {second}, {first}"):
        checkpoints("show", root.path, "7")
    for word, says in (("8", "no checkpoint '8'"), ("x", "neither a step"), ("-1", "neither a step")):
        with pytest.raises(ConfigError, match=says):
            checkpoints("show", root.path, word) if word != "-1" else checkpoints(
                "show", root.path, "--", "-1"
            )


def test_an_error_of_the_storage_is_one_line(root: Root, checkpoints, monkeypatch) -> None:
    """Where no directory can be named for it, the word of the system and the file; exit code 1."""
    put_commit(root, 1)

    def broken(_root: Root) -> None:
        raise OSError(5, "Input/output error", "retention.json")

    monkeypatch.setattr("rampmeter.checkpoints.removing.read_keep", broken)
    code, text = checkpoints("prune", root.path)
    assert code == 1
    assert text == "rampmeter checkpoints: Input/output error: retention.json\n"


def test_a_stop_is_one_line(root: Root, checkpoints, monkeypatch) -> None:
    """Ctrl-C: exit code 130, and what is to be known."""
    put_commit(root, 1)

    def stop(_text: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rampmeter.checkpoints.looking.print_answer", stop)
    code, text = checkpoints("ls", root.path)
    assert code == 130
    assert text.startswith("rampmeter checkpoints: stopped")
