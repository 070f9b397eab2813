"""Temporary files that killed processes left: which go, when, and by whom."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rampmeter import files
from rampmeter.janitor import Janitor
from rampmeter.layout import Root, StepName
from rampmeter.retention import Keep, write_keep
from rampmeter.rollback import Choice, note_choice
from rampmeter.temporaries import MARGIN_S, is_abandoned, old_temporaries, sweep_temporaries
from support.roots import change_manifest, nothing, put_commit

LIMIT_S = 60.0
NOW_S = 1_800_000_000.0
HOUR_S = 3600.0
UUID = "0123456789abcdef" * 2


def put(root: Root, name: str, written_s: float, *, directory: str = "") -> Path:
    """A file that a killed process has left."""
    path = root.path / directory / name
    path.write_bytes(b"half")
    os.utime(path, (written_s, written_s))
    return path


def attempts(root: Root, *began_s: float) -> None:
    """Attempts that began at these times, by the clock of the file system."""
    root.ensure_job_uid()
    for at_s in began_s:
        claim = root.claim_attempt()
        os.utime(root.path / "attempts" / f"{claim.number:05d}", (at_s, at_s))


def swept(root: Root) -> list[str]:
    """What two rounds remove."""
    seen: set[Path] = set()
    assert sweep_temporaries(root, seen, nothing) == []
    return sorted(path.name for path in sweep_temporaries(root, seen, nothing))


# -- which ones -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claims_s", "expected"),
    [
        ([NOW_S, NOW_S - 1000.0], True),
        ([NOW_S], False),
        ([], False),
        ([NOW_S, NOW_S - 2 * HOUR_S], False),
        ([NOW_S - 2 * HOUR_S, NOW_S + 1e8], False),
        ([NOW_S + 1e8, NOW_S - 2 * HOUR_S], False),
        ([NOW_S, NOW_S - 1000.0, NOW_S - 9 * HOUR_S], True),
    ],
    ids=[
        "two attempts since",
        "the first attempt",
        "no attempt",
        "of the attempt before",
        "the attempt before had a clock that was ahead",
        "this attempt has a clock that is ahead",
        "older attempts do not count",
    ],
)
def test_only_what_is_older_than_a_whole_attempt_is_abandoned(claims_s: list[float], expected: bool) -> None:
    """Written before the last but one began, and an hour for clocks that differ."""
    assert is_abandoned(NOW_S - 1.5 * HOUR_S, claims_s) is expected


def test_the_margin_is_an_hour() -> None:
    """Not a second less."""
    claims_s = [NOW_S, NOW_S]
    assert is_abandoned(NOW_S - MARGIN_S - 1.0, claims_s)
    assert not is_abandoned(NOW_S - MARGIN_S, claims_s)


def test_everything_that_is_written_so_under_a_root_is_known(root: Root, monkeypatch) -> None:
    """Whatever is written by a temporary name in the root or beside the claims is swept once it is old."""
    written: list[Path] = []
    write = files.write_temporary

    def note(path: Path, content: bytes) -> Path:
        written.append(write(path, content))
        return written[-1]

    monkeypatch.setattr(files, "write_temporary", note)
    attempts(root, NOW_S, NOW_S)
    root.replace_latest(StepName(step=1, attempt=1, nonce="0" * 8))
    root.write_plan_bytes(b"{}")
    write_keep(root, Keep())
    note_choice(root, Choice(attempt=2, name=StepName(step=1, attempt=1, nonce="0" * 8)))
    left = {put(root, str(path.relative_to(root.path)), NOW_S - 2 * HOUR_S) for path in written}
    assert {files.meant_name(path.name) for path in left} == {
        "JOB_UID",
        "00001",
        "00002",
        "LATEST",
        "plan.json",
        "retention.json",
        "00002.began-from",
    }
    assert set(old_temporaries(root)) == left


def test_others_stay(root: Root, tmp_path: Path) -> None:
    """Names of others, what is in a checkpoint, links and directories, however old they are."""
    attempts(root, NOW_S, NOW_S)
    name = put_commit(root, 1)
    old_s = NOW_S - 9 * HOUR_S
    put(root, f".LATEST.{UUID}.tmp.part", old_s)
    put(root, f".notes.txt.{UUID}.tmp", old_s)
    put(root, ".LATEST.tmp", old_s)
    put(root, f".LATEST.{UUID[:31]}.tmp", old_s)
    put(root, f"LATEST.{UUID}.tmp", old_s)
    put(root, f".LATEST.{UUID}.tmp", old_s, directory=str(name))
    put(root, f".LATEST.{UUID}.tmp", old_s, directory="attempts")
    put(root, f".00001.{UUID}.tmp", old_s)
    target = tmp_path / "target"
    target.write_bytes(b"")
    os.utime(target, (old_s, old_s))
    link = root.path / f".plan.json.{UUID}.tmp"
    link.symlink_to(target)
    os.utime(link, (old_s, old_s), follow_symlinks=False)
    directory = root.path / f".JOB_UID.{UUID}.tmp"
    directory.mkdir()
    os.utime(directory, (old_s, old_s))
    assert old_temporaries(root) == []


def test_what_was_written_since_stays(root: Root) -> None:
    """In this attempt, in the one before, or just before that one by the clock of another machine."""
    attempts(root, NOW_S - 9 * HOUR_S, NOW_S - 3 * HOUR_S, NOW_S)
    put(root, f".LATEST.{UUID}.tmp", NOW_S + 1.0)
    put(root, f".plan.json.{UUID}.tmp", NOW_S - HOUR_S)
    put(root, f".retention.json.{UUID}.tmp", NOW_S - 3.9 * HOUR_S)
    old = put(root, f".JOB_UID.{UUID}.tmp", NOW_S - 4.1 * HOUR_S)
    assert swept(root) == [old.name]


# -- how they go ------------------------------------------------------------------------------------------------


def test_one_goes_only_when_it_was_there_in_the_round_before(root: Root) -> None:
    """Whatever its time says: a living process has renamed its own by then."""
    attempts(root, NOW_S, NOW_S)
    first = put(root, f".LATEST.{UUID}.tmp", 0.0)
    seen: set[Path] = set()
    assert sweep_temporaries(root, seen, nothing) == []
    second = put(root, f".plan.json.{UUID}.tmp", 0.0)
    assert sweep_temporaries(root, seen, nothing) == [first]
    assert sweep_temporaries(root, seen, nothing) == [second]
    assert sweep_temporaries(root, seen, nothing) == []


def test_a_round_looks_at_so_many_and_breathes_before_each(root: Root, monkeypatch) -> None:
    """The rest is for the next ones."""
    monkeypatch.setattr("rampmeter.temporaries.MOST_LOOKED_AT", 3)
    attempts(root, NOW_S, NOW_S)
    for number in range(5):
        put(root, f".LATEST.{number:032x}.tmp", 0.0)
    breaths: list[None] = []
    seen: set[Path] = set()
    gone = [len(sweep_temporaries(root, seen, lambda: breaths.append(None))) for _ in range(4)]
    assert gone == [0, 3, 0, 2]
    assert len(breaths) == 5


def test_nothing_is_swept_where_a_newer_format_stands(root: Root) -> None:
    """Its names may mean something else."""
    attempts(root, NOW_S, NOW_S)
    name = put_commit(root, 1)
    put(root, f".LATEST.{UUID}.tmp", 0.0)
    change_manifest(root, name, format=2)
    assert swept(root) == []


def test_one_that_cannot_be_removed_disturbs_no_other(root: Root, monkeypatch, caplog) -> None:
    """Told in the log, tried again."""
    attempts(root, NOW_S, NOW_S)
    stuck = put(root, f".LATEST.{UUID}.tmp", 0.0)
    other = put(root, f".plan.json.{UUID}.tmp", 0.0)
    unlink = Path.unlink

    def refuse(self: Path, missing_ok: bool = False) -> None:
        if self == stuck:
            raise PermissionError(13, "Permission denied")
        unlink(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    assert swept(root) == [other.name]
    assert stuck.name in caplog.text


def test_a_root_that_cannot_be_looked_into_loses_nothing(root: Root, monkeypatch, caplog) -> None:
    """Not permitted to look: nothing is removed, nothing is raised."""

    def refuse(_self: Root):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Root, "claim_files", refuse)
    assert sweep_temporaries(root, set(), nothing) == []
    assert "cannot look into" in caplog.text


KILLED = """
import os, pathlib, signal, sys
from rampmeter.layout import Root, StepName
pathlib.Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
root = Root(sys.argv[1])
root.ensure_job_uid()
claim = root.claim_attempt()
root.replace_latest(StepName(step=1, attempt=claim.number, nonce="0" * 8))
"""


def test_what_a_killed_process_left_is_swept_by_the_job(root: Root) -> None:
    """Killed before its rename; the janitor of the attempt after the next removes it once it has made a save."""
    killed = subprocess.run([sys.executable, "-c", KILLED, root.path], check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = root.path.glob(".*.tmp")
    assert stat.S_ISREG(left.lstat().st_mode)
    os.utime(left, (NOW_S - 5 * HOUR_S,) * 2)
    for attempt in (2, 3):
        root.claim_attempt()
        os.utime(root.claim_files()[0], (NOW_S, NOW_S))
        os.utime(root.claim_files()[1], (NOW_S - (5 * HOUR_S if attempt == 2 else 0.0),) * 2)
        keep = Keep(keep=2, keep_days=0)
        janitor = Janitor(root, keep, attempt=attempt, is_fenced=lambda: False, reading=lambda: None)
        janitor.start()
        assert janitor.wait(LIMIT_S)
        assert left.exists()
        put_commit(root, attempt)
        janitor.poke()
        assert janitor.wait(LIMIT_S)
        janitor.close(LIMIT_S)
        assert left.exists() == (attempt == 2)
