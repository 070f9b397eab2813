"""`pin` and `unpin`: what somebody wants to keep."""

import pytest

from rampmeter.core.errors import ConfigError
from rampmeter.layout import MANIFEST_NAME, Root
from rampmeter.removal import DELETING_NAME
from rampmeter.retention import Keep, prune
from support.roots import nothing, put_commit, put_leftover, steps_in

ONE = Keep(keep=1, keep_days=0)


def test_a_pinned_one_stays_until_it_is_unpinned(root: Root, checkpoints) -> None:
    """Whatever the job's retention says; pinning twice is no error."""
    names = [put_commit(root, step) for step in (1, 2, 3)]
    assert checkpoints("pin", root.path, 1) == (0, f"pinned {names[0]}\n")
    assert checkpoints("pin", root.path, 1)[0] == 0
    prune(root, ONE, nothing)
    assert steps_in(root) == [3, 1]
    code, found = checkpoints("unpin", root.path, 1, as_json=True)
    assert (code, found["unpinned"]) == (0, [str(names[0])])
    prune(root, ONE, nothing)
    assert steps_in(root) == [3]


def test_unpinning_what_is_not_pinned_is_told(root: Root, checkpoints) -> None:
    """It is as wished, so the code is 0."""
    name = put_commit(root, 1)
    code, text = checkpoints("unpin", root.path, 1)
    assert code == 0
    assert f"{name} was not pinned" in text


def test_what_is_no_checkpoint_cannot_be_pinned(root: Root, checkpoints) -> None:
    """Leftovers are refused, and nothing is pinned then."""
    put_commit(root, 1)
    leftover = put_leftover(root, 2, 1)
    with pytest.raises(ConfigError, match=f"{leftover} is no checkpoint"):
        checkpoints("pin", root.path, 1, leftover)
    assert not list(root.path.glob("*/PINNED"))


def test_one_that_a_job_removes_meanwhile_is_told(root: Root, checkpoints, monkeypatch) -> None:
    """Exit code 1: it is not pinned."""
    name = put_commit(root, 1)
    put_commit(root, 2)
    directory = root.directory(name)
    monkeypatch.setattr(
        "rampmeter.checkpoints.pinning._check_can_be_pinned",
        lambda _: (directory / MANIFEST_NAME).rename(directory / DELETING_NAME),
    )
    code, text = checkpoints("pin", root.path, 1)
    assert code == 1
    assert "being removed" in text
