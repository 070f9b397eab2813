"""The coordinator's Dockerfile, as far as it can be judged without an engine."""

import json
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from support.servers import PROGRAMS, Coordinator


@pytest.fixture(scope="module")
def dockerfile(top: Path) -> str:
    """With continued lines joined."""
    return (top / "coordinator/Dockerfile").read_text().replace("\\\n", " ")


@pytest.fixture(scope="module")
def health_check(dockerfile: str) -> list[str]:
    """The command of the HEALTHCHECK, which must be in exec form, for the interpreter of this environment."""
    (command,) = re.findall(r"^HEALTHCHECK .*? CMD (\[.*\])$", dockerfile, re.MULTILINE)
    program, *arguments = json.loads(command)
    assert program == "python"
    return [sys.executable, *arguments]


def test_the_linter_has_nothing_to_say(top: Path) -> None:
    """hadolint finds no fault in the Dockerfile."""
    done = subprocess.run(
        [PROGRAMS / "hadolint", "--no-color", "coordinator/Dockerfile"],
        cwd=top,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_process_is_not_root(dockerfile: str) -> None:
    """The last stage runs as a numeric user, which an orchestrator can check."""
    assert re.findall(r"^USER (\S+)$", dockerfile.rsplit("\nFROM ", maxsplit=1)[-1], re.MULTILINE) == [
        "10001:10001"
    ]


def test_signals_reach_the_coordinator(dockerfile: str) -> None:
    """No shell stands between the container's stop signal and the process."""
    assert re.findall(r"^(?:ENTRYPOINT|CMD) (.*)$", dockerfile, re.MULTILINE) == [
        '["rampmeter"]',
        '["serve"]',
    ]


def test_what_the_build_needs_is_in_its_context(top: Path, dockerfile: str) -> None:
    """Every copied path exists, passes .dockerignore, and with them the wheel has all that it names."""
    copied = {
        source
        for line in re.findall(r"^COPY (.*)$", dockerfile, re.MULTILINE)
        for source in line.split()[:-1]
    }
    let_in = {line[1:] for line in (top / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    project = tomllib.loads((top / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    needed = {"pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]}
    assert copied == let_in
    assert needed | {Path(package).parts[0] for package in packages} <= copied
    assert all((top / source).exists() for source in copied)


def test_the_health_check_passes_while_the_coordinator_lives(
    health_check: list[str], coordinator: Coordinator
) -> None:
    """The image's own command exits 0 against a live coordinator."""
    port = coordinator.address.rpartition(":")[2]
    assert subprocess.run(health_check, env={"RAMPMETER_PORT": port}, check=False, timeout=30).returncode == 0


def test_the_health_check_fails_when_nobody_answers(health_check: list[str]) -> None:
    """The image's own command exits with an error where nothing listens."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = str(reserved.getsockname()[1])
        done = subprocess.run(
            health_check, env={"RAMPMETER_PORT": port}, capture_output=True, check=False, timeout=30
        )
    assert done.returncode == 1
