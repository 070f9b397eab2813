"""Real programs on loopback that end with the test; the coordinator among them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.waiting import wait_for

PROGRAMS = Path(sys.executable).parent
"""Where the programs of the environment are: rampmeter, docker-compose, hadolint."""


TESTS = Path(__file__).parents[1]


def without_settings() -> dict[str, str]:
    """This environment without any of Rampmeter's variables."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RAMPMETER_")}


@contextmanager
def running(command: list[str | Path], log: Path, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program with its output in `log`, ended by its pid."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env=without_settings() | environ
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(15)


@dataclass(frozen=True, slots=True)
class Coordinator:
    """A real `rampmeter serve`."""

    process: subprocess.Popen[bytes]
    url: str

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return self.url.removeprefix("http://").rstrip("/")

    def stop(self) -> None:
        """As a supervisor stops it."""
        self.process.terminate()
        assert self.process.wait(15) == 0


@contextmanager
def serving(where: Path, *options: str, **environ: str) -> Iterator[Coordinator]:
    """`rampmeter serve` on a free port, with its store, log and ready file in `where`, once it answers."""
    ready, log = where / "url", where / "log"
    command = [PROGRAMS / "rampmeter", "serve", "--port", "0", "--ready-file", ready, *options]
    with running(command, log, **{"RAMPMETER_DATA_DIR": str(where)} | environ) as process:
        wait_for(lambda: ready.exists() or process.poll() is not None, what="the ready file")
        assert process.poll() is None, log.read_text()
        yield Coordinator(process, ready.read_text().strip())


@contextmanager
def listening(module: str, *, limit_s: float = 60.0) -> Iterator["subprocess.Popen[str]"]:
    """A program of tests/ that is told on stdin and tells on stdout; it ends when nothing more will be said."""
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=TESTS,
        env=without_settings(),
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(limit_s)
