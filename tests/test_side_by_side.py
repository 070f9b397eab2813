"""The pytest processes of `make test`: every test is in one of them, all count, and all end when told to."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import side_by_side
from support.waiting import wait_for

UNTIL_INTERRUPTED = """
import pathlib, sys, time
name = sys.argv[1]
try:
    pathlib.Path(name, "begun").touch()
    time.sleep(60)
finally:
    pathlib.Path(name, "ended").touch()
"""


RUNNER = """
import pathlib, signal, sys
import side_by_side
signal.signal(signal.SIGINT, {at_first})
sys.exit(side_by_side.run([{one}, {other}], [pathlib.Path({log!r})]))
"""


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether that process has a handler of its own for this signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.partition("SigCgt:")[2].split()[0], 16) >> (number - 1) & 1)


def ending(code: int, says: str = "") -> list[str]:
    return [sys.executable, "-c", f"print({says!r}); raise SystemExit({code})"]


def test_every_test_is_in_exactly_one_of_them(tmp_path: Path) -> None:
    """Each in the first that names it; a folder or a file that nobody has named runs in the last."""
    files = ("timed/test_a.py", "new/test_b.py", "test_c.py", "system/test_d.py", "system/test_e.py")
    for file in (f"tests/{name}" for name in files):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("def test_it(): pass\n")
    parts = [
        side_by_side.Part("one", 0, ("tests/timed", "tests/system/test_d.py")),
        side_by_side.Part("two", 5, ("tests/system",)),
        side_by_side.Part("rest", 19, ()),
    ]
    said = [
        subprocess.run(
            [*command, "-q", "--collect-only"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for command in side_by_side.commands(parts)
    ]
    found = [sorted(line.partition("::")[0] for line in text.splitlines() if "::" in line) for text in said]
    assert found == [
        ["tests/system/test_d.py", "tests/timed/test_a.py"],
        ["tests/system/test_e.py"],
        ["tests/new/test_b.py", "tests/test_c.py"],
    ]


@pytest.mark.parametrize("place", [place for part in side_by_side.PARTS for place in part.places])
def test_a_named_place_exists(place: str) -> None:
    """One that was renamed would run elsewhere, where time is not kept."""
    assert (side_by_side.TOP / place).exists()


def test_the_last_part_takes_what_nobody_has_named() -> None:
    """A new folder under tests/ cannot be forgotten."""
    assert side_by_side.PARTS[-1].places == ()


@pytest.mark.parametrize(("first", "beside", "both"), [(0, 0, 0), (1, 0, 1), (0, 1, 1), (2, 5, 1)])
def test_all_must_pass(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], first: int, beside: int, both: int
) -> None:
    """And what both say is seen, the other's last."""
    log = tmp_path / "build" / "beside.log"
    code = side_by_side.run([ending(first, "one"), ending(beside, "other")], [log])
    assert code == both
    said = capfd.readouterr().out
    assert said.index("one") < said.index("other", said.index("beside"))


@pytest.mark.parametrize(
    ("tell", "at_first"),
    [
        pytest.param(lambda process: os.killpg(process.pid, signal.SIGINT), signal.SIG_DFL, id="Ctrl-C"),
        pytest.param(lambda process: process.terminate(), signal.SIG_DFL, id="SIGTERM"),
        pytest.param(lambda process: process.terminate(), signal.SIG_IGN, id="SIGTERM in the background"),
    ],
)
def test_all_end_when_told_to(
    tmp_path: Path, tell: Callable[[subprocess.Popen[bytes]], None], at_first: signal.Handlers
) -> None:
    """Each as if by Ctrl-C, so that it stops what it started; the result is a failure."""
    folders = [tmp_path / "first", tmp_path / "beside"]
    for folder in folders:
        folder.mkdir()
    one, other = ([sys.executable, "-c", UNTIL_INTERRUPTED, str(folder)] for folder in folders)
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            RUNNER.format(one=one, other=other, log=str(tmp_path / "log"), at_first=int(at_first)),
        ],
        cwd=side_by_side.TOP / "tests",
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    wait_for(lambda: all((folder / "begun").exists() for folder in folders), what="both to run")
    wait_for(lambda: catches(process.pid, signal.SIGTERM), what="what runs them to be ready for it")
    tell(process)
    assert process.wait(30) == 1
    assert all((folder / "ended").exists() for folder in folders)
