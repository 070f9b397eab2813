"""Retention: the newest stays, whatever else happens, and half a deletion is no checkpoint."""

import os
from pathlib import Path
from typing import Any

import pytest

from rampmeter import retention
from rampmeter.core.errors import ConfigError
from rampmeter.layout import MANIFEST_NAME, Root, StepName
from rampmeter.manifest import Manifest, read_manifest


@pytest.fixture
def steps(root: Root, make_saver: Any, save: Any) -> Any:
    """Commits the given steps by one attempt and returns their names."""

    def commit(*numbers: int) -> list[StepName]:
        saver = make_saver()
        for number in numbers:
            assert save(saver, number, {"x": number}).committed
        return root.committed_steps()

    return commit


def _numbers(root: Root) -> list[int]:
    return [name.step for name in root.committed_steps()]


def test_steps_are_compared_as_numbers(root: Root, steps: Any) -> None:
    """Of 9900, 10000 and 10100 the last two stay."""
    steps(9900, 10_000, 10_100)
    removed = retention.prune(root, 2)
    assert [name.step for name in removed] == [9900]
    assert _numbers(root) == [10_100, 10_000]


def test_extreme_steps(root: Root, steps: Any) -> None:
    """Step 0 and step 10^9 are ordinary steps."""
    steps(0, 5, 10**9)
    retention.prune(root, 1)
    assert _numbers(root) == [10**9]


def test_a_newer_attempt_counts_before_a_higher_step(root: Root, steps: Any) -> None:
    """What a stopped attempt wrote last goes before what the current one wrote."""
    steps(100, 200)
    steps(50)
    retention.prune(root, 1)
    assert _numbers(root) == [50]


@pytest.mark.parametrize("keep", [0, -1])
def test_keeping_nothing_is_refused(root: Root, steps: Any, keep: int) -> None:
    """A count below one is a mistake, and nothing is removed."""
    steps(1)
    with pytest.raises(ConfigError, match="keep"):
        retention.prune(root, keep)
    assert _numbers(root) == [1]


@pytest.mark.parametrize(("keep", "expected"), [(1, [4, 1]), (3, [4, 3, 2, 1])])
def test_protected_steps_stay(root: Root, steps: Any, keep: int, expected: list[int]) -> None:
    """A protected checkpoint stays in addition to the newest ones."""
    names = steps(1, 2, 3, 4)
    retention.prune(root, keep, protected={str(names[-1])})
    assert _numbers(root) == expected


def test_the_manifest_goes_first(root: Root, steps: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion that is cut off after its first step has already made the directory a leftover."""
    steps(1, 2)
    monkeypatch.setattr(retention, "remove_tree", lambda _: (_ for _ in ()).throw(OSError(5, "I/O error")))
    assert retention.prune(root, 1) == []
    assert _numbers(root) == [2]
    assert len(root.step_names()) == 2
    monkeypatch.undo()
    assert [name.step for name in retention.sweep(root, 1)] == [1]


def test_a_failed_deletion_is_logged(
    root: Root, steps: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A checkpoint that cannot be removed does not disturb training or the others."""
    steps(1, 2, 3)
    unlink = Path.unlink

    def refuse(self: Path, missing_ok: bool = False) -> None:
        if "step-00000001" in str(self):
            raise PermissionError(13, "Permission denied")
        unlink(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    assert [name.step for name in retention.prune(root, 1)] == [2]
    assert "step-00000001" in caplog.text


def test_a_root_that_cannot_be_read_loses_nothing(
    root: Root, steps: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not permitted to look: nothing is removed, nothing is raised."""
    steps(1, 2)

    def refuse(_self: Root) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Root, "step_names", refuse)
    assert retention.prune(root, 1) == []
    assert retention.sweep(root, 9) == []
    assert "cannot look" in caplog.text


def test_unreadable_manifests_neither_count_nor_go(root: Root, steps: Any) -> None:
    """A damaged newest checkpoint does not push out the last whole one."""
    names = steps(1, 2, 3)
    (root.directory(names[0]) / MANIFEST_NAME).write_bytes(b"{")
    retention.prune(root, 1)
    assert _numbers(root) == [3, 2]


def test_newer_formats_are_left_alone(root: Root, steps: Any) -> None:
    """What a newer version wrote is not ours to delete."""
    names = steps(1, 2, 3)
    directory = root.directory(names[-1])
    manifest = read_manifest(directory)
    parts = {field: getattr(manifest, field) for field in Manifest.__dataclass_fields__} | {"format": 2}
    (directory / MANIFEST_NAME).write_bytes(Manifest(**parts).to_json())
    retention.prune(root, 1)
    assert _numbers(root) == [3, 1]


def test_sweep_takes_only_own_old_uncommitted_directories(root: Root, steps: Any) -> None:
    """Commits, saves in flight, newer attempts and foreign directories are not swept."""
    steps(1)
    for attempt in (1, 2, 3):
        root.directory(StepName(step=9, attempt=attempt, nonce="00000000")).mkdir()
    in_flight = StepName(step=10, attempt=2, nonce="00000000")
    root.directory(in_flight).mkdir()
    (root.path / "logs").mkdir()
    swept = retention.sweep(root, 2, in_flight={str(in_flight)})
    assert sorted(name.attempt for name in swept) == [1, 2]
    left = {path.name for path in root.path.iterdir()}
    assert {str(in_flight), "step-00000009.a00003.00000000", "logs"} <= left
    assert _numbers(root) == [1]


def test_network_leftovers_do_not_fail_a_deletion(
    root: Root, steps: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `.nfs` file of a reader that still has a shard open stays for its owner; the checkpoint is gone."""
    names = steps(1, 2)
    stray = root.directory(names[-1]) / ".nfs0001"
    stray.touch()
    unlink = os.unlink

    def busy(path: Any, *args: Any, **kwargs: Any) -> None:
        if ".nfs" in str(path):
            raise OSError(16, "Device or resource busy")
        unlink(path, *args, **kwargs)

    monkeypatch.setattr(os, "unlink", busy)
    assert [name.step for name in retention.prune(root, 1)] == [1]
    assert [path.name for path in stray.parent.iterdir()] == [".nfs0001"]
