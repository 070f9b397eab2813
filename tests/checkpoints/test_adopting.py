"""`adopt`: a checkpoint of another writer becomes a commit, whole or not at all."""

import dataclasses
import pickle
import threading
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint import state_dict_saver
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict

from rampmeter.checkpoints import adopting
from rampmeter.checkpoints.foreign import read_foreign
from rampmeter.core.errors import ConfigError, CorruptCheckpoint, ForeignCheckpoints
from rampmeter.hashing import FileHasher
from rampmeter.layout import MANIFEST_NAME, Root
from rampmeter.manifest import read_manifest
from rampmeter.marks import Mark, has_mark
from rampmeter.restore import restore
from support.foreign import metadata, put_foreign
from support.roots import flip, put_commit, steps_in

SHARDS = {"__0_0.distcp": 5000, "__1_0.distcp": 3000}


@pytest.fixture
def foreign(root: Root) -> Path:
    """A finished checkpoint of another writer under the root."""
    return put_foreign(root.path / "step_500", SHARDS)


def test_it_becomes_a_whole_commit(root: Root, foreign: Path, checkpoints) -> None:
    """Moved, hashed, pinned, and verified by its digests; --dry-run does nothing."""
    before = sorted(path.name for path in foreign.iterdir())
    code, text = checkpoints("adopt", foreign, "--dry-run")
    assert code == 0
    assert text.startswith(f"would become step 500 of {root.path}: 3 files")
    assert sorted(path.name for path in foreign.iterdir()) == before
    assert [path.name for path in root.path.iterdir()] == ["step_500"]
    code, found = checkpoints("adopt", foreign, as_json=True)
    assert code == 0
    assert not foreign.exists()
    (name,) = root.committed_steps()
    assert (str(name), name.step, name.attempt) == (found["directory"], 500, 0)
    assert has_mark(root.directory(name), Mark.PINNED)
    manifest = read_manifest(root.directory(name))
    assert manifest.world_size == 2
    assert [(file.name, file.rank) for file in manifest.files] == [
        (".metadata", 0),
        ("__0_0.distcp", 0),
        ("__1_0.distcp", 1),
    ]
    assert manifest.unchecked == ("model.weight", "step")
    assert checkpoints("verify", root.path)[0] == 0
    assert root.foreign_checkpoints() == []
    flip(root.directory(name) / "__1_0.distcp")
    assert checkpoints("verify", root.path)[0] == 1


def test_a_real_one_is_restored_bit_for_bit(root: Root, checkpoints) -> None:
    """Written by torch, adopted without it, restored by us; before, a restore refuses the root and names the way."""

    def run(seed: int):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
        optim = torch.optim.Adam(model.parameters())
        model(torch.randn(4, 8)).sum().backward()
        optim.step()
        return model, optim

    model, optim = run(1)
    state = {"model": get_model_state_dict(model), "optim": get_optimizer_state_dict(model, optim)}
    directory = root.path / "global_step42"
    state_dict_saver.save(state, checkpoint_id=directory, no_dist=True)
    fresh_model, fresh_optim = run(2)
    fresh = {"model": fresh_model, "optim": fresh_optim}
    with pytest.raises(ForeignCheckpoints, match=f"adopt {directory}"):
        restore(root, fresh)
    assert checkpoints("adopt", directory)[0] == 0
    found = restore(root, fresh)
    assert found is not None
    assert found.step == 42
    expected = model.state_dict()
    assert all(torch.equal(value, expected[key]) for key, value in fresh_model.state_dict().items())
    assert torch.equal(
        fresh_optim.state_dict()["state"][0]["exp_avg"], optim.state_dict()["state"][0]["exp_avg"]
    )


def test_the_shells_read_what_torch_writes(tmp_path: Path) -> None:
    """Files and ends are those of torch's own reader, and the file is as long as the last item says at least."""
    state_dict_saver.save({"a": torch.ones(1000), "b": {"c": 3}}, checkpoint_id=tmp_path, no_dist=True)
    with (tmp_path / ".metadata").open("rb") as stream:
        places = pickle.load(stream).storage_data.values()
    found = read_foreign(tmp_path)
    ends = {place.relative_path: 0 for place in places}
    for place in places:
        ends[place.relative_path] = max(ends[place.relative_path], place.offset + place.length)
    assert {file.name: file.least_bytes for file in found.files[1:]} == ends
    assert found.items == ("a", "b.c")


def test_a_pickle_is_not_executed(root: Root, foreign: Path, checkpoints, tmp_path: Path) -> None:
    """A `.metadata` that would run a program when torch opens it does nothing here and is refused."""
    victim = tmp_path / "touched"

    class Evil:
        def __reduce__(self):
            return (Path.touch, (victim,))

    (foreign / ".metadata").write_bytes(pickle.dumps(Evil()))
    code, text = checkpoints("adopt", foreign)
    assert code == 1
    assert "cannot be understood" in text
    assert not victim.exists()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: (d / ".metadata").unlink(), "half written: its last file, .metadata, is not there"),
        (lambda d: (d / "__1_0.distcp").unlink(), "half written: file __1_0.distcp is missing"),
        (lambda d: (d / "__1_0.distcp").write_bytes(b"x" * 2999), "has 2999 bytes and needs 3000"),
        (lambda d: (d / ".metadata").write_bytes(b"\x80\x04"), "cannot be understood"),
        (lambda d: (d / ".metadata").write_bytes(b""), "cannot be understood"),
        (lambda d: (d / ".metadata").write_bytes(metadata({"../x": 10}, ())), "names a file outside of it"),
        (
            lambda d: (d / "__0_0.distcp").rename(d / "a") and (d / "__0_0.distcp").symlink_to("a"),
            "no plain file",
        ),
    ],
)
def test_what_is_not_finished_is_refused(root: Root, foreign: Path, checkpoints, change, says: str) -> None:
    """Exit code 1, what is missing, and the directory as it was."""
    change(foreign)
    before = sorted(path.name for path in foreign.iterdir())
    for options in ((), ("--dry-run",)):
        code, text = checkpoints("adopt", foreign, *options)
        assert code == 1
        assert says in text
    assert sorted(path.name for path in foreign.iterdir()) == before
    assert [path.name for path in root.path.iterdir()] == ["step_500"]


def test_what_another_kind_of_writer_made_is_refused(root: Root, checkpoints) -> None:
    """The way that is left is named."""
    directory = root.path / "checkpoint-500"
    directory.mkdir(parents=True)
    (directory / "model.safetensors").touch()
    code, text = checkpoints("adopt", directory)
    assert code == 1
    assert "not written by torch.distributed.checkpoint" in text
    assert "fresh=True" in text


def test_one_that_is_being_written_is_refused(root: Root, foreign: Path, checkpoints, monkeypatch) -> None:
    """A file that changed while it was read."""
    finish = FileHasher.finish

    def write_behind(self: FileHasher, name: str):
        if name == "__1_0.distcp":
            flip(foreign / "__0_0.distcp")
        return finish(self, name)

    monkeypatch.setattr(FileHasher, "finish", write_behind)
    code, text = checkpoints("adopt", foreign)
    assert code == 1
    assert "__0_0.distcp has changed while it was read" in text
    assert steps_in(root) == []


def test_it_is_older_than_all_that_the_job_saved(root: Root, foreign: Path, checkpoints) -> None:
    """A higher step of a foreign history is never the future of a job with commits, and a live job is not fenced."""
    put_commit(root, 10)
    claim = root.newest_claim()
    assert checkpoints("adopt", foreign)[0] == 0
    assert steps_in(root) == [10, 500]
    assert root.newest_claim() == claim
    put_commit(root, 11, claim=claim)
    assert steps_in(root) == [11, 10, 500]


def test_the_step_comes_from_the_name_or_is_asked_for(root: Root, checkpoints) -> None:
    """`--step` counts before the name."""
    last = put_foreign(root.path / "last", SHARDS)
    with pytest.raises(ConfigError, match="option --step: last does not end with a step"):
        checkpoints("adopt", last)
    with pytest.raises(ConfigError, match="option --step: must be"):
        checkpoints("adopt", last, "--step", -1)
    assert checkpoints("adopt", last, "--step", 7)[0] == 0
    assert steps_in(root) == [7]


def test_wrong_places_are_refused(
    root: Root, foreign: Path, checkpoints, tmp_path: Path, monkeypatch
) -> None:
    """A root, one of ours, a link, a directory around the root, another file system."""
    ours = root.directory(put_commit(root, 1))
    link = tmp_path / "link"
    link.symlink_to(foreign)
    for directory, options, says in (
        (root.path, (), "is the root of a job"),
        (ours, (), "checkpoint of rampmeter's own"),
        (link, (), "symbolic link"),
        (tmp_path, ("--root", root.path, "--step", 1), "is inside of"),
        (tmp_path / "not_5", (), "no such directory"),
        ("", (), "DIR is empty"),
        (foreign, ("--root", "/proc"), "another file system"),
    ):
        with pytest.raises(ConfigError, match=says):
            checkpoints("adopt", directory, *options)
    assert foreign.exists()


def test_it_may_come_from_elsewhere(root: Root, checkpoints, tmp_path: Path) -> None:
    """Into a root that is named, also one that no job has used yet."""
    root.path.mkdir()
    directory = put_foreign(tmp_path / "elsewhere" / "iter_0000012", SHARDS)
    assert checkpoints("adopt", directory, "--root", root.path)[0] == 0
    assert steps_in(root) == [12]
    assert len(root.ensure_job_uid()) == 32


def test_the_same_again_is_refused(root: Root, foreign: Path, checkpoints) -> None:
    """A copy of what is there already stays where it is."""
    assert checkpoints("adopt", foreign)[0] == 0
    again = put_foreign(foreign, SHARDS)
    code, text = checkpoints("adopt", again)
    assert code == 1
    assert "there already" in text
    assert again.exists()
    assert steps_in(root) == [500]


@pytest.mark.parametrize("steps", [(500, 500), (500, 600)])
def test_two_at_once_adopt_it_once(root: Root, foreign: Path, checkpoints, steps) -> None:
    """One wins, the other says that it is gone; what stands there is whole and is what its name says."""
    barrier = threading.Barrier(2)
    found = read_foreign(foreign)
    hashed = adopting.hash_files(foreign, found, lambda _name, _num_bytes: None)
    problems = []

    def adopt(step: int) -> None:
        barrier.wait()
        try:
            adopting._take_in(foreign, root, step, found, hashed)
        except CorruptCheckpoint as error:
            problems.append(str(error))

    threads = [threading.Thread(target=adopt, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(problems) == 1
    assert "somebody else adopts" in problems[0]
    assert checkpoints("verify", root.path)[0] == 0
    assert len(root.step_names()) == 1


def test_a_manifest_of_the_other_one_is_put_right(
    root: Root, foreign: Path, checkpoints, monkeypatch
) -> None:
    """Another `adopt` with another step wrote its manifest just before our rename."""
    rename = Path.rename

    def overwritten(self: Path, target):
        if self == foreign:
            manifest = dataclasses.replace(read_manifest(self), step=600)
            (self / MANIFEST_NAME).write_bytes(manifest.to_json())
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", overwritten)
    code, text = checkpoints("adopt", foreign)
    assert (code, steps_in(root)) == (0, [500]), text
    assert checkpoints("verify", root.path)[0] == 0
