"""The command: its help, its options, and one short real demo."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rampmeter.cli import main
from rampmeter_coordinator.demo import cli as demo_cli
from support.waiting import wait_for

_DEMO = [sys.executable, "-c", "import sys; from rampmeter.cli import main; sys.exit(main())", "demo"]


def test_help_explains_and_gives_an_example(capsys):
    """Somebody who never saw it knows what it does, how long it takes and how to call it."""
    with pytest.raises(SystemExit) as caught:
        main(["demo", "--help"])
    text = capsys.readouterr().out
    assert caught.value.code == 0
    assert "rampmeter demo --kill-coordinator --png timeline.png" in text
    assert "about 90 seconds on 2 cores" in text


def test_an_act_too_short_is_refused(capsys):
    """No job would save."""
    assert main(["demo", "--act-seconds", "3"]) == 2
    assert "option --act-seconds: must be at least 12" in capsys.readouterr().err


def test_a_directory_with_something_in_it_is_refused(tmp_path, capsys):
    """The demo writes nowhere where somebody keeps something."""
    (tmp_path / "thesis.tex").touch()
    assert main(["demo", "--keep", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["demo.jpeg2", "missing/demo.png"])
def test_a_picture_that_cannot_be_written_is_refused_at_once(tmp_path, capsys, name):
    """Nobody waits for both acts to hear it."""
    assert main(["demo", "--png", str(tmp_path / name)]) == 2
    assert "option --png:" in capsys.readouterr().err


def test_without_the_extra_it_says_what_to_install(capsys, monkeypatch):
    """The coordinator alone brings the command, but not what it plays with."""
    monkeypatch.setattr(demo_cli, "find_spec", lambda name: None if name == "torch" else object())
    assert main(["demo"]) == 2
    assert "needs torch: pip install 'rampmeter[demo]'" in capsys.readouterr().err


def test_the_command_is_found_without_torch_or_matplotlib():
    """Asking for help must not cost seconds."""
    program = "import sys, rampmeter_coordinator.demo.cli; sys.exit(bool({'torch', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.system
def test_a_short_demo_keeps_its_promises(tmp_path):
    """Real processes, a SIGKILL of a job and of the coordinator: exit code 0 and the figures as JSON."""
    png = tmp_path / "demo.png"
    done = subprocess.run(
        [*_DEMO, "--json", "--kill-coordinator", "--act-seconds", "12", "--png", str(png)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout)
    assert list(figures) == ["herd", "metered", "kill"]
    assert figures["metered"]["peak_over_capacity"] <= 0.8 < figures["herd"]["peak_over_capacity"]
    assert figures["kill"]["bit_exact"] is True
    assert png.read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob("rampmeter-demo-*"))


@pytest.mark.system
def test_ctrl_c_leaves_nothing_behind(tmp_path):
    """Stopped while jobs train: exit code 130, no process, no directory."""
    demo = subprocess.Popen(
        [*_DEMO, "--act-seconds", "60"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        start_new_session=True,
    )
    wait_for(lambda: list(tmp_path.glob("*/history-herd/*.jsonl")), what="jobs to start")
    os.killpg(demo.pid, signal.SIGINT)
    demo.communicate(timeout=60)
    assert demo.returncode == 130
    assert not list(tmp_path.glob("rampmeter-demo-*"))
    wait_for(lambda: not _processes_of(tmp_path), what="all processes to end")


def _processes_of(directory):
    """Processes that have a file in `directory` open."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            links = [str(link.readlink()) for link in (process / "fd").iterdir()]
        except OSError:
            continue
        if any(link.startswith(str(directory)) for link in links):
            found.append(process.name)
    return found
