"""A ROOT that is one level off: each verb names the one that was probably meant."""

import pytest

from rampmeter.core.errors import ConfigError
from rampmeter.layout import Root
from support.roots import put_commit


@pytest.mark.parametrize("verb", ["ls", "verify"])
def test_a_checkpoint_or_a_directory_above_roots_is_no_root(root: Root, checkpoints, verb: str) -> None:
    """Neither is called empty, nor full of checkpoints of another writer."""
    directory = root.directory(put_commit(root, 100))
    with pytest.raises(ConfigError, match=f"step 100, no root: its root is {root.path}$"):
        checkpoints(verb, directory)
    with pytest.raises(ConfigError, match=rf"holds roots of jobs: name one of them \({root.path}\)"):
        checkpoints(verb, root.path.parent)


def test_ls_of_a_directory_in_a_root_names_the_root(root: Root, checkpoints) -> None:
    """Whether it is there and empty, or not there at all."""
    put_commit(root, 1)
    with pytest.raises(ConfigError, match=f"no such directory; {root.path} is the root of a job"):
        checkpoints("ls", root.path / "checkpoints")
    (root.path / "checkpoints").mkdir()
    _, text = checkpoints("ls", root.path / "checkpoints")
    assert f"{root.path} is the root of one" in " ".join(text.split())
