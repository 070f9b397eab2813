"""Missing Debian packages: what the install script says, and how tests skip. Nothing is installed here."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SCRIPT = TESTS / "install-debian-packages.sh"

Run = Callable[[dict[str, str]], subprocess.CompletedProcess[str]]


@pytest.fixture
def run_script(tmp_path: Path) -> Run:
    """Run the script where these programs are replaced by these shell lines."""

    def run(replaced: dict[str, str]) -> subprocess.CompletedProcess[str]:
        for name, line in replaced.items():
            program = tmp_path / name
            program.write_text(f"#!/bin/sh\n{line}\n")
            program.chmod(0o755)
        environ = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        return subprocess.run(
            ["sh", SCRIPT], env=environ, capture_output=True, text=True, check=False, timeout=60
        )

    return run


def test_nothing_happens_when_everything_is_there(run_script: Run) -> None:
    """With all packages installed apt is not even asked."""
    done = run_script({"dpkg-query": "echo install ok installed", "apt-get": "echo called; exit 1"})
    assert (done.returncode, done.stdout) == (0, "debian-packages: nothing to do\n")


def test_who_is_not_root_gets_the_command_and_no_error(run_script: Run) -> None:
    """Without the right to install, the script names the command, calls no apt and succeeds."""
    done = run_script({"dpkg-query": "exit 1", "id": "echo 1000", "apt-get": "echo called; exit 1"})
    assert done.returncode == 0
    assert (
        "apt-get install -y --no-install-recommends redis-server prometheus rclone fuse3 strace\n"
        in done.stdout
    )
    assert "called" not in done.stdout


def test_a_removed_package_with_left_over_settings_counts_as_missing(run_script: Run) -> None:
    """dpkg still knows such a package, but its programs are gone."""
    done = run_script({"dpkg-query": "echo deinstall ok config-files", "id": "echo 1000"})
    assert "not installed: redis-server prometheus rclone fuse3 strace" in done.stdout


def test_a_test_whose_program_is_missing_skips_with_the_command(tmp_path: Path) -> None:
    """The skip message is what has to be typed."""
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "@pytest.mark.debian('prometheus', binary='no-such-program')\n"
        "def test_it():\n    raise AssertionError\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
    assert "no-such-program is missing: apt-get install -y --no-install-recommends prometheus" in done.stdout
