"""Commands as processes: without torch, killed at named points, two at once, and beside a live job.

After every kill the root holds whole checkpoints only, and the next command finishes what was begun.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rampmeter.layout import Root
from rampmeter.manifest import read_manifest
from rampmeter.removal import Standing, standing
from rampmeter.retention import Keep, prune
from rampmeter.verification import Verifier
from support.foreign import put_foreign
from support.roots import nothing, put_commit, put_leftover, steps_in
from support.waiting import wait_for

TESTS = Path(__file__).parents[1]
COMMAND = TESTS / "support" / "checkpoints_command.py"
LIMIT_S = 120.0
KILLED = -signal.SIGKILL
SHARDS = {"__0_0.distcp": 5000, "__1_0.distcp": 3000}


def start(*words, point: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, COMMAND, point, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error; no run ever ends with a traceback."""
    out, err = process.communicate(timeout=LIMIT_S)
    assert "Traceback" not in err, err
    return process.returncode, out, err


def run(*words, point: str = "") -> tuple[int, str, str]:
    return end(start(*words, point=point))


def all_whole(root: Root) -> None:
    """Every committed checkpoint is whole to the last byte."""
    for name in root.committed_steps():
        directory = root.directory(name)
        Verifier(directory, read_manifest(directory)).verify_all()


def test_it_needs_no_torch(root: Root) -> None:
    """Every verb works where torch and numpy cannot be imported."""
    for step in (1, 2, 3, 4):
        put_commit(root, step)
    put_foreign(root.path / "step_500", SHARDS)
    for words in (
        ("ls", root.path),
        ("show", root.path, "newest"),
        ("verify", root.path),
        ("pin", root.path, "1"),
        ("unpin", root.path, "1"),
        ("rm", root.path, "1"),
        ("prune", root.path, "--keep", "1"),
        ("adopt", root.path / "step_500"),
    ):
        code, out, err = run(*words)
        assert (code, bool(out)) == (0, True), (words, err)
    assert steps_in(root) == [4, 500]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("ls", "/not/there"), "rampmeter checkpoints: /not/there: there is no such directory"),
        (("rm",), "the following arguments are required"),
        (("mv", "x"), "invalid choice"),
        ((), "the following arguments are required: VERB"),
    ],
)
def test_a_wrong_call_is_two(words, says: str) -> None:
    """One line that says what is wrong."""
    code, _, err = run(*words)
    assert code == 2
    assert says in err


REMOVAL_POINTS = [
    "before rename MANIFEST.withdrawn",
    "after rename MANIFEST.withdrawn",
    "before rename MANIFEST.deleting",
    "after rename MANIFEST.deleting",
    "after sync step-00000001",
    "after unlink .metadata",
    "after unlink BLOCKS",
    "after unlink __0_0.distcp",
    "before unlink MANIFEST.deleting",
    "after unlink MANIFEST.deleting",
    "before rmdir step-00000001",
    "after rmdir step-00000001",
]


@pytest.mark.parametrize(
    ("verb", "point"),
    [*(("rm", point) for point in REMOVAL_POINTS), *(("prune", point) for point in REMOVAL_POINTS[1::3])],
)
def test_killed_while_removing(root: Root, checkpoints, verb: str, point: str) -> None:
    """What still counts is whole, the newest is untouched, and the next `prune` leaves no leftover behind."""
    for step in (1, 2):
        put_commit(root, step)
    words = ("rm", root.path, "1") if verb == "rm" else ("prune", root.path, "--keep", "1")
    code, _, err = run(*words, point=point)
    assert code == KILLED, err
    assert steps_in(root) == ([2, 1] if point == REMOVAL_POINTS[0] else [2])
    all_whole(root)
    assert checkpoints("ls", root.path)[0] == 0
    root.claim_attempt()  # an empty directory is a leftover of its attempt
    assert checkpoints("prune", root.path, "--keep", "1")[0] == 0
    assert [name.step for name in root.step_names()] == [2]


@pytest.mark.parametrize(
    ("point", "adopted"),
    [
        ("after sync __1_0.distcp", False),
        ("after replace BLOCKS", False),
        ("before replace MANIFEST.json", False),
        ("after replace MANIFEST.json", False),
        ("before rename step-", False),
        ("after rename step-", True),
    ],
)
def test_killed_while_adopting(root: Root, checkpoints, point: str, adopted: bool) -> None:
    """Up to the rename it is the foreign checkpoint that it was, from there on a commit; nothing is swept away."""
    put_commit(root, 1)
    foreign = put_foreign(root.path / "step_500", SHARDS)
    before = {path.name: path.read_bytes() for path in foreign.iterdir()}
    code, _, err = run("adopt", foreign, point=point)
    assert code == KILLED, err
    assert foreign.exists() is not adopted
    assert steps_in(root) == ([1, 500] if adopted else [1])
    root.claim_attempt()
    assert checkpoints("prune", root.path, "--keep", "1")[0] == 0
    if not adopted:
        assert before.items() <= {path.name: path.read_bytes() for path in foreign.iterdir()}.items()
        assert checkpoints("adopt", foreign)[0] == 0
    assert steps_in(root) == [1, 500]
    all_whole(root)


def test_two_prunes_at_once(root: Root) -> None:
    """Both end well, and exactly what should stay, stays."""
    for step in range(1, 9):
        put_commit(root, step)
    both = [start("prune", root.path, "--keep", "2") for _ in range(2)]
    for code, _, err in map(end, both):
        assert code == 0, err
    assert [name.step for name in root.step_names()] == [8, 7]
    all_whole(root)


def test_one_prune_stands_still_and_another_goes_on(root: Root) -> None:
    """Stopped in the middle of a removal, the first is overtaken; when it wakes up it finds all done."""
    for step in (1, 2, 3):
        put_commit(root, step)
    first = start("prune", root.path, "--keep", "1", point="stop after rename MANIFEST.withdrawn")
    try:
        wait_for(lambda: _is_stopped(first.pid), what="the first to stand still", limit_s=LIMIT_S)
        assert run("prune", root.path, "--keep", "1")[0] == 0
        assert [name.step for name in root.step_names()] == [3]
    finally:
        os.kill(first.pid, signal.SIGCONT)
    code, _, err = end(first)
    assert code == 0, err
    assert [name.step for name in root.step_names()] == [3]
    all_whole(root)


def test_a_pin_while_a_removal_stands_still(root: Root) -> None:
    """Pinned while another process has the manifest withdrawn: it comes back, and the sleeper does not take it."""
    for step in (1, 2):
        put_commit(root, step)
    directory = root.directory(root.committed_steps()[-1])
    removing = start("rm", root.path, "1", point="stop after rename MANIFEST.withdrawn")
    try:
        wait_for(lambda: _is_stopped(removing.pid), what="the removal to stand still", limit_s=LIMIT_S)
        assert standing(directory) is Standing.WITHDRAWN
        code, out, err = run("pin", root.path, directory.name)
        assert code == 0, (out, err)
    finally:
        os.kill(removing.pid, signal.SIGCONT)
    code, _, err = end(removing)
    assert code == 1
    assert "pinned meanwhile" in err
    assert steps_in(root) == [2, 1]
    all_whole(root)


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


JOB = """
import sys
from rampmeter.janitor import Janitor
from rampmeter.layout import Root
from rampmeter.manifest import read_manifest
from rampmeter.retention import Keep
from support.roots import put_commit, put_leftover

root = Root(sys.argv[1])
claim = root.claim_attempt()
janitor = Janitor(
    root, Keep(keep=3, keep_days=0), attempt=claim.number, is_fenced=lambda: False, reading=lambda: None
)
janitor.start()
for step in range(100, 140):
    leftover = put_leftover(root, step, claim.number)
    put_commit(root, step, claim=claim)
    print(step, len([name for name in root.step_names() if not name == leftover]), flush=True)
    assert len(list(root.directory(leftover).iterdir())) == 3, "the save in flight was touched"
    for path in root.directory(leftover).iterdir():
        path.unlink()
    root.directory(leftover).rmdir()
    janitor.poke()
    assert janitor.wait(60.0)
janitor.close(60.0)
"""


def test_commands_beside_a_live_job(root: Root) -> None:
    """A job commits and prunes while others list, verify, prune and pin: no save is touched, nothing whole is lost."""
    for step in (1, 2, 3):
        put_commit(root, step)
    job = subprocess.Popen(
        [sys.executable, "-c", JOB, root.path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=TESTS,
    )
    codes = []
    try:
        while job.poll() is None and len(codes) < 40:
            for words in (
                ("ls", root.path),
                ("prune", root.path, "--keep", "2", "--keep-days", "0"),
                ("verify", root.path, "newest"),
            ):
                code, _, err = run(*words)
                assert code in (0, 1), err  # 1: the job has removed what was being verified
                codes.append(code)
                # Twice: all that the first look listed may have been replaced before it looked into them.
                assert root.committed_steps() or root.committed_steps(), (
                    "there is a checkpoint at every moment"
                )
    finally:
        out, err = job.communicate(timeout=LIMIT_S)
    assert job.returncode == 0, err
    assert out.splitlines()[-1].startswith("139 ")
    prune(root, Keep(keep=2, keep_days=0), nothing)
    assert steps_in(root) == [139, 138]
    all_whole(root)
    assert 0 in codes


def test_a_leftover_of_a_live_attempt_is_not_swept_by_hand(root: Root, checkpoints) -> None:
    """The newest attempt may be alive: `prune` leaves what it writes alone, `ls` says what it is."""
    put_commit(root, 1)
    name = put_leftover(root, 2, 1)
    assert checkpoints("prune", root.path, "--keep", "1")[0] == 0
    assert name in root.step_names()
    assert "being written, or left by a crash" in checkpoints("ls", root.path)[1]
