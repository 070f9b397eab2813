"""Cases of what is restored, and of what is kept."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from rampmeter import removal
from rampmeter.core.clock import SystemClock
from rampmeter.core.errors import ConfigError, CorruptCheckpoint, RestoreError
from rampmeter.layout import MANIFEST_NAME, Root
from rampmeter.report import SaveReport
from rampmeter.restore import restore
from rampmeter.saving import Saver
from rampmeter.throttle import Throttle
from support.case_state import keep_newest, loaded

Save = Callable[..., SaveReport]
NOBODY = 65534
LIMIT_S = 60.0


def unthrottled() -> Throttle:
    """For one save."""
    throttle = Throttle()
    throttle.set_rate(None)
    return throttle


def directory(root: Root, step: int) -> Path:
    """Of the newest checkpoint of this step."""
    return next(root.directory(name) for name in root.step_names() if name.step == step)


def shorten(path: Path, num_bytes: int) -> None:
    """Take bytes from the end."""
    os.truncate(path, path.stat().st_size - num_bytes)


def test_c80_the_newest_whole_one_is_taken_and_the_others_are_explained(root: Root, save: Save) -> None:
    """300 is whole, 400 without metadata, 500 a byte short, 600 empty, 700 half renamed: 300."""
    for step in (300, 400, 500):
        assert save(step).committed
    (directory(root, 400) / ".metadata").unlink()
    shorten(directory(root, 500) / "__0_0.distcp", 1)
    (root.path / "step-00000600.a00001.00000000").mkdir()
    (root.path / "step-700.tmp").mkdir()
    found = loaded(root)
    assert found is not None
    assert found.step == 300
    assert [text.split(" (")[0] for text in found.skipped] == [
        "skipped step 600",
        "skipped step 500",
        "skipped step 400",
    ]
    assert "__0_0.distcp is 1 byte short" in found.skipped[1]


def parts(value: float) -> dict[str, Any]:
    """A module and tensors, all of whose values are this one."""
    module = torch.nn.Linear(100, 100)
    for parameter in module.parameters():
        torch.nn.init.constant_(parameter, value)
    return {"first": module, **{name: torch.full((1000,), value) for name in ("middle", "table")}}


def values(state: dict[str, Any]) -> set[float]:
    """All that there are in it."""
    tensors = [*state["first"].parameters(), state["middle"], state["table"]]
    return {float(value) for tensor in tensors for value in tensor.detach().unique()}


def alter_the_end(path: Path) -> None:
    """Other bytes, as many."""
    shorten(path, 100)
    with path.open("ab") as file:
        file.write(bytes(100))


@pytest.mark.parametrize("damage", ["truncated", "altered", "empty", "gone"])
def test_c81_a_damaged_shard_falls_back_and_touches_nothing_before_all_is_verified(
    root: Root, damage: str
) -> None:
    """The step before is loaded; where there is none the state is as it was, also what stands before the damage.

    That is a module, which is loaded in place, and tensors: of the file only the last bytes are ill.
    """
    saver = Saver(root, root.claim_attempt(), job="case")
    for step in (1, 2):
        assert saver.begin(step, parts(float(step)), unthrottled()).result(LIMIT_S).committed
    saver.close(0.0)
    harm = {
        "truncated": lambda shard: shorten(shard, 1000),
        "altered": alter_the_end,
        "empty": lambda shard: os.truncate(shard, 0),
        "gone": Path.unlink,
    }[damage]
    harm(directory(root, 2) / "__0_0.distcp")
    state = parts(-1.0)
    found = restore(root, state)
    assert found is not None
    assert found.step == 1
    assert values(state) == {1.0}
    assert "skipped step 2" in found.skipped[0]
    harm(directory(root, 1) / "__0_0.distcp")
    state, before = parts(-1.0), torch.get_rng_state()
    with pytest.raises(CorruptCheckpoint):
        restore(root, state)
    assert values(state) == {-1.0}
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("steps", [[9900, 10000, 10100], [0, 10**9, 10**9 + 1]])
def test_c82_steps_are_numbers(root: Root, save: Save, steps: list[int]) -> None:
    """Not texts, of which 10000 would be before 9900."""
    for step in steps:
        assert save(step).committed
        keep_newest(root, 2)
    assert sorted(name.step for name in root.committed_steps()) == steps[1:]
    found = loaded(root)
    assert found is not None
    assert found.step == steps[2]


@pytest.mark.parametrize(
    ("keep", "is_protected", "left"), [(1, True, [4, 1]), (1, False, [4]), (3, True, [4, 3, 2, 1])]
)
def test_c84_the_newest_and_the_protected_ones_stay(
    root: Root, save: Save, keep: int, is_protected: bool, left: list[int]
) -> None:
    """Whatever is kept, a protected one takes nobody's place; keeping none is refused."""
    for step in (1, 2, 3, 4):
        assert save(step).committed
    if is_protected:
        assert removal.pin(root.directory(root.committed_steps()[-1]), SystemClock())
    keep_newest(root, keep)
    assert [name.step for name in root.committed_steps()] == left
    for none in (0, -1):
        with pytest.raises(ConfigError):
            keep_newest(root, none)


def test_c92_a_pointer_that_stayed_behind_decides_nothing(
    root: Root, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names 100, 110 and 120 are complete: the newest verified one is taken, 120."""
    assert save(100).committed

    def refuse(*_: object) -> None:
        raise OSError("not now")

    monkeypatch.setattr(Root, "replace_latest", refuse)
    assert save(110).committed
    assert save(120).committed
    latest = root.read_latest()
    assert latest is not None
    assert latest.step == 100
    found = loaded(root)
    assert found is not None
    assert found.step == 120


@pytest.mark.parametrize("kind", ["missing", "empty", "leftovers"])
def test_c93_the_very_first_start_finds_nothing(tmp_path: Path, kind: str) -> None:
    """Training begins at 0, and that is no error."""
    root = Root(tmp_path / "root")
    if kind != "missing":
        root.path.mkdir()
    if kind == "leftovers":
        (root.path / "step-00000600.a00001.00000000").mkdir()
    assert loaded(root) is None


@pytest.fixture
def nobodys_root() -> Iterator[Root]:
    """A root that others can reach, so that somebody whom modes hold back can be tried on it."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    where = Path(tempfile.mkdtemp())
    where.chmod(0o755)
    try:
        yield Root(where / "root")
    finally:
        shutil.rmtree(where)


@contextmanager
def becoming_nobody() -> Iterator[None]:
    """Somebody whom modes hold back, for this block."""
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("name", ["__0_0.distcp", ".metadata", MANIFEST_NAME])
def test_c81_what_may_not_be_read_is_damage_or_said(nobodys_root: Root, name: str) -> None:
    """Mode 000 on one file of the newest: the step before is loaded and this one named; alone, nothing is touched."""
    root = nobodys_root
    saver = Saver(root, root.claim_attempt(), job="case")
    for step in (1, 2):
        state = {"table": torch.full((1000,), float(step))}
        assert saver.begin(step, state, unthrottled()).result(LIMIT_S).committed
    saver.close(0.0)
    for path in [root.path, *root.path.rglob("*")]:
        os.chown(path, NOBODY, NOBODY)
    (directory(root, 2) / name).chmod(0)
    with becoming_nobody():
        found = loaded(root)
    assert found is not None
    assert (found.step, len(found.skipped)) == (1, 1)
    assert "skipped step 2" in found.skipped[0]
    (directory(root, 1) / name).chmod(0)
    state = {"table": torch.full((1000,), -1.0)}
    with becoming_nobody(), pytest.raises(RestoreError):
        restore(root, state)
    assert bool((state["table"] == -1.0).all())


def test_c93_what_may_not_be_looked_at_is_not_nothing(nobodys_root: Root) -> None:
    """An error, so that training does not begin anew because of a mode."""
    root = nobodys_root
    root.path.mkdir()
    (root.path / "step-00000600.a00001.00000000").mkdir()
    (root.path / "step-00000600.a00001.00000000" / MANIFEST_NAME).touch()
    root.path.chmod(0o700)
    state: dict[str, Any] = {"table": torch.zeros(10)}
    with becoming_nobody(), pytest.raises(RestoreError):
        restore(root, state)
