"""How a command prints its answer, as a process: what the reader is decides nothing about what is found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = "import sys; from rampmeter import cli; sys.exit(cli.main(sys.argv[1:]))"
PLAN = "[run]\nname = 'l\u00e4uf'\ngpus = 8\nlength = '1d'\n[schedule]\nevery = '1h'\n[size]\ntotal = '1GB'\n"


@pytest.fixture
def commands(tmp_path):
    """One call of each command that prints one text; the directory is its own."""
    (tmp_path / "plan.toml").write_text(PLAN, encoding="utf-8")
    return [
        ["plan", "--stall", "4min", "--mtbf", "9h", "--sweep"],
        ["review", str(tmp_path / "plan.toml")],
        ["probe", str(tmp_path), "--size", "1MiB", "--seconds", "1", "--writers", "1"],
    ]


def started(arguments, stdout, **settings):
    """A process whose errors are read."""
    command = [sys.executable, "-c", CODE, *arguments]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True, **settings)


def test_a_full_disk_is_named(commands):
    """Exit code 2 and one line; never a traceback."""
    with Path("/dev/full").open("w") as full:
        running = [started(arguments, full) for arguments in commands]
        said = [process.communicate()[1].splitlines()[-1] for process in running]
    assert [process.returncode for process in running] == [2, 2, 2]
    assert all("cannot print the answer: No space left on device" in line for line in said)


def test_a_closed_output_and_a_reader_that_left_are_no_errors(commands):
    """The exit code is that of the answer, and nothing is said but what the probe is about to do."""
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", CODE]
    for arguments in commands:
        done = subprocess.run([*closed, *arguments], stderr=subprocess.PIPE, text=True, check=False)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False)
        process = started(arguments, subprocess.PIPE)
        process.stdout.close()
        assert "Traceback" not in process.stderr.read()
        assert process.wait() == 0


def test_a_terminal_without_unicode_gets_escapes(commands):
    """The name of a plan may hold anything; bars are drawn with plain characters."""
    _, review, _ = commands
    process = started(review, subprocess.PIPE, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert process.communicate()[0].startswith("l\\xe4uf: 8 GPUs")
    assert process.returncode == 0
