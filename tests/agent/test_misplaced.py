"""A root that is one level off is refused with the one that was meant, before anything is written there."""

from pathlib import Path
from typing import Any

import pytest
import torch

import rampmeter
from rampmeter.core.errors import ConfigError, ForeignCheckpoints, RestoreError
from rampmeter.layout import Root
from rampmeter.misplaced import misplaced, root_above
from rampmeter.restore import restore
from support.roots import put_commit


def _contents(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*"))


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_checkpoint_is_no_root(root: Root, below: str) -> None:
    """Its root is named, in a restore and at the start of a job, which writes nothing into the checkpoint."""
    directory = root.directory(put_commit(root, 100))
    before = _contents(directory)
    message = rf"the checkpoint of step 100, no root: its root is {root.path}$"
    with pytest.raises(RestoreError, match=message):
        restore(directory / below, {"t": torch.zeros(1)})
    with (
        pytest.raises(ConfigError, match=rf"^root: .*{message}"),
        rampmeter.Checkpointer(directory / below, interval_max_s=100.0),
    ):
        pass
    assert _contents(directory) == before


def test_a_directory_above_roots_is_no_root(tmp_path: Path) -> None:
    """Three of them are named, and nothing is written there."""
    for number in range(4):
        Root(tmp_path / f"run{number}").ensure_job_uid()
    before = _contents(tmp_path)
    message = rf"holds roots of jobs: name one of them \({tmp_path}/run0, .*run2 and 1 more\)"
    with pytest.raises(RestoreError, match=message):
        restore(tmp_path, {"t": torch.zeros(1)})
    with pytest.raises(ConfigError, match=message), rampmeter.Checkpointer(tmp_path):
        pass
    assert _contents(tmp_path) == before


def test_the_claims_of_a_job_are_no_root(root: Root) -> None:
    """The directory above is named."""
    put_commit(root, 1)
    assert str(misplaced(Root(root.path / "attempts"))).endswith(f"its root is {root.path}")


def test_a_root_is_not_doubted_for_what_stands_in_it(root: Root) -> None:
    """A begun job keeps its root, with roots inside, also before its first save; so does one whose uid was lost."""
    put_commit(root, 1)
    Root(root.path / "evaluation").ensure_job_uid()
    assert misplaced(root) is None
    begun = Root(root.path / "evaluation")
    Root(begun.path / "inner").ensure_job_uid()
    assert misplaced(begun) is None
    (root.path / "JOB_UID").unlink()
    assert misplaced(root) is None
    assert misplaced(Root(root.path / "nothing")) is None


def test_a_new_root_inside_of_a_root_is_told_of(root: Root, caplog: pytest.LogCaptureFixture) -> None:
    """It may be meant so: the job begins, and the log names the root above; the second start is silent."""
    put_commit(root, 1)
    for told in (1, 1):
        with rampmeter.Checkpointer(root.path / "checkpoints", interval_max_s=100.0):
            pass
        assert caplog.text.count(f"inside of the root {root.path} of another") == told
    assert root_above(root) is None


def test_foreign_files_in_the_root_itself_are_not_to_be_adopted(root: Root, make_saver: Any) -> None:
    """Only a directory can be taken in: no command is advised that would refuse."""
    root.path.mkdir(parents=True)
    (root.path / ".metadata").touch()
    with pytest.raises(ForeignCheckpoints, match=r"another writer \(.metadata\): load one yourself"):
        restore(root, {"t": torch.zeros(1)})
