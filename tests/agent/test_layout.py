"""The root: identity, claims, names, order, pointer, and what belongs to somebody else."""

import errno
import json
import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from rampmeter.core.clock import ManualClock
from rampmeter.core.errors import ConfigError
from rampmeter.layout import MANIFEST_NAME, Claim, Root, StepName


def _uid_in(path: str) -> str:
    return Root(path).ensure_job_uid()


def _claims_in(path: str) -> list[int]:
    return [Root(path).claim_attempt().number for _ in range(10)]


def _pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("spawn"))


def _commit(root: Root, step: int, attempt: int = 1, nonce: str = "00000000") -> StepName:
    name = StepName(step=step, attempt=attempt, nonce=nonce)
    root.directory(name).mkdir(parents=True)
    (root.directory(name) / MANIFEST_NAME).write_text("{}")
    return name


def test_job_uid_is_the_same_for_all_who_race(tmp_path: Path) -> None:
    """Eight first starts in four processes agree on one 32-hex identity."""
    with _pool() as pool:
        uids = set(pool.map(_uid_in, [str(tmp_path / "root")] * 8))
    assert len(uids) == 1
    assert len(uids.pop()) == 32


def test_job_uid_is_never_seen_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies while creating the identity leaves none, and the next start makes one."""
    script = (
        "import os, rampmeter.files as files\n"
        "files.os.fsync = lambda *_: os._exit(9)\n"
        "from rampmeter.layout import Root\n"
        f"Root({str(tmp_path)!r}).ensure_job_uid()\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9
    assert not (tmp_path / "JOB_UID").exists()
    assert len(Root(tmp_path).ensure_job_uid()) == 32


def test_damaged_job_uid_is_refused(tmp_path: Path) -> None:
    """An empty identity is an error that names the file, never a new identity."""
    (tmp_path / "JOB_UID").touch()
    with pytest.raises(ConfigError, match="JOB_UID"):
        Root(tmp_path, clock=ManualClock()).ensure_job_uid()


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EPERM, errno.EIO])
def test_file_system_without_links_still_gets_one_uid(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where hard links are refused, the exclusive create takes over; FUSE mounts of rclone refuse them with EIO."""

    def refuse(*_args: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    assert Root(tmp_path).ensure_job_uid() == Root(tmp_path).ensure_job_uid()


def test_racing_claims_never_share_a_number(root: Root) -> None:
    """Forty claims from four processes are forty different numbers without a gap."""
    with _pool() as pool:
        numbers = [n for part in pool.map(_claims_in, [str(root.path)] * 4) for n in part]
    assert sorted(numbers) == list(range(1, 41))


def test_claim_starts_at_what_the_coordinator_knows(root: Root) -> None:
    """A root that lost its claims continues above the number that the coordinator has stored."""
    assert root.claim_attempt(at_least=7).number == 7
    assert root.claim_attempt().number == 8


def test_newest_claim_is_by_number_and_carries_its_nonce(root: Root) -> None:
    """Attempt 100000 is newer than 99999, although it sorts before it as text."""
    root.claim_attempt(at_least=99_999)
    newest = root.claim_attempt()
    assert root.newest_claim() == newest
    assert newest.number == 100_000
    record = json.loads((root.path / "attempts" / "100000").read_text())
    assert set(record) == {"nonce", "host", "pid", "claimed_at"}


def test_unreadable_claim_belongs_to_nobody(root: Root) -> None:
    """An empty claim file still fences the attempts before it."""
    claim = root.claim_attempt()
    (root.path / "attempts" / "00002").touch()
    assert root.newest_claim() == Claim(number=2, nonce="")
    assert root.newest_claim() != claim


@pytest.mark.parametrize("step", [0, 4000, 99_999_999, 10**9])
def test_step_names_survive_the_round_trip(step: int) -> None:
    """Steps are padded to eight digits and parsed as integers of any length."""
    name = StepName(step=step, attempt=3, nonce="deadbeef")
    assert StepName.parse(str(name)) == name


@pytest.mark.parametrize("text", ["step-700.tmp", "step-00000001.a00001", "step-1.a1.deadbeef", "", "LATEST"])
def test_other_names_are_not_ours(text: str) -> None:
    """Anything that does not have all three parts is not parsed."""
    assert StepName.parse(text) is None


def test_checkpoints_count_by_attempt_then_step_as_integers(root: Root) -> None:
    """A later attempt that went back to an earlier step is newer; 10000 is newer than 9900."""
    old = [_commit(root, step) for step in (9900, 10_000, 10_100, 10**9)]
    resumed = _commit(root, 9950, attempt=2)
    assert root.committed_steps() == [resumed, *reversed(old)]


def test_a_directory_without_manifest_is_not_committed(root: Root) -> None:
    """Shards alone are no checkpoint, and stray files of a network file system do not disturb."""
    name = _commit(root, 1)
    (root.directory(name) / ".nfs0001").touch()
    root.directory(StepName(step=2, attempt=1, nonce="00000000")).mkdir()
    (root.path / ".nfs0002").touch()
    assert root.committed_steps() == [name]


def test_empty_and_missing_roots_hold_nothing(tmp_path: Path) -> None:
    """Looking into a root that is not there yet finds nothing and creates nothing."""
    root = Root(tmp_path / "never")
    assert root.step_names() == []
    assert root.newest_claim() is None
    assert root.read_latest() is None
    assert root.foreign_checkpoints() == []
    assert root.read_plan_bytes() is None
    assert not root.path.exists()


def test_not_permitted_is_not_nothing(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """A root that may not be listed raises instead of looking empty."""

    def refuse(self: Path) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    _commit(root, 1)
    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(PermissionError):
        root.committed_steps()
    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(PermissionError):
        root.step_names()


def test_pointer_follows_and_damage_is_only_a_lost_hint(root: Root) -> None:
    """LATEST names what was put there; garbage in it is no hint."""
    name = _commit(root, 5)
    root.replace_latest(name)
    assert root.read_latest() == name
    (root.path / "LATEST").write_bytes(b"\xff\x00garbage")
    assert root.read_latest() is None


def test_pointer_update_is_retried_and_bounded(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two refused renames are retried with pauses; an endless refusal is raised and leaves no temporary file."""
    clock = ManualClock()
    patient = Root(root.path, clock=clock)
    name = _commit(root, 5)
    replace, refusals = Path.replace, [PermissionError(13, "busy")] * 2

    def busy(self: Path, target: Path) -> Path:
        if refusals:
            raise refusals.pop()
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", busy)
    patient.replace_latest(name)
    assert patient.read_latest() == name
    refusals += [PermissionError(13, "busy")] * 100
    before_s = clock.now()
    with pytest.raises(PermissionError):
        patient.replace_latest(name)
    assert clock.now() - before_s < 1.0
    assert sorted(p.name for p in root.path.iterdir()) == ["LATEST", str(name)]


def test_plan_is_kept_under_the_root(root: Root) -> None:
    """The last Plan comes back byte for byte, and the newest wins."""
    root.path.mkdir()
    root.write_plan_bytes(b'{"a": 1}')
    root.write_plan_bytes(b'{"a": 2}')
    assert root.read_plan_bytes() == b'{"a": 2}'


@pytest.mark.parametrize(
    ("path", "is_directory"),
    [
        ("checkpoint-500", True),
        ("model.pt", False),
        ("step-700/.metadata", False),
        ("run/model.safetensors", False),
        ("global_step12", True),
        (".metadata", False),
    ],
)
def test_checkpoints_of_others_are_found(root: Root, path: str, is_directory: bool) -> None:
    """Directories and files as other writers leave them are named."""
    target = root.path / path
    if is_directory:
        target.mkdir(parents=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    assert root.foreign_checkpoints() == [path.split("/", maxsplit=1)[0]]


def test_our_own_files_are_not_foreign(root: Root) -> None:
    """Nothing that the agent itself puts under a root looks foreign, committed or not."""
    root.ensure_job_uid()
    root.claim_attempt()
    name = _commit(root, 1)
    root.replace_latest(name)
    root.write_plan_bytes(b"{}")
    leftover = root.directory(StepName(step=2, attempt=1, nonce="00000000"))
    leftover.mkdir()
    (leftover / "__0_0.distcp").touch()
    (root.path / "logs").mkdir()
    (root.path / "logs" / "train.log").touch()
    assert root.foreign_checkpoints() == []
