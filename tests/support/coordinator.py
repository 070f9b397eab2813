"""A real `rampmeter serve` process on a free port of loopback."""

import contextlib
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx

from support.servers import PROGRAMS, without_settings
from support.waiting import wait_for


class Coordinator:
    """One coordinator over one directory; may be killed and started again."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.data_dir = directory / "data"
        self.url = ""
        self.process: subprocess.Popen[bytes] | None = None
        self._options = options
        self._log = directory / "serve.log"
        self._ready_file = directory / "url"

    def start(self) -> None:
        """Start the process and wait until it answers."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Start the process; whoever starts several need not wait for one after the other."""
        self._ready_file.unlink(missing_ok=True)
        command = [
            PROGRAMS / "rampmeter",
            "serve",
            "--port",
            "0",
            "--data-dir",
            str(self.data_dir),
            *self._options,
        ]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--ready-file", str(self._ready_file)],
                stdout=log,
                stderr=log,
                env=without_settings(),
            )

    def wait_until_ready(self) -> None:
        """Return when it answers, and know its URL."""
        wait_for(lambda: self._ready_file.exists() or self.process.poll() is not None, what="the coordinator")
        assert self._ready_file.exists(), self.log()
        self.url = self._ready_file.read_text().strip()

    def client(self, **options: object) -> httpx.Client:
        """A client of this coordinator."""
        return httpx.Client(base_url=self.url, timeout=30, trust_env=False, **options)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()

    def log(self) -> str:
        """Everything that it printed."""
        return self._log.read_text()

    def number(self, pool: str = "default") -> int:
        """The number of the newest commit in its SQLite store."""
        with contextlib.closing(sqlite3.connect(self.data_dir / "rampmeter.sqlite3")) as db:
            return db.execute("SELECT max(number) FROM commits WHERE pool = ?", (pool,)).fetchone()[0]

    def num_sockets(self) -> int:
        """Sockets that the process has open."""
        count = 0
        for descriptor in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                count += str(descriptor.readlink()).startswith("socket:")
        return count


@contextlib.contextmanager
def coordinator(directory: Path, *options: str, start: bool = True) -> Iterator[Coordinator]:
    """A coordinator, started unless told otherwise, killed at the end if it still runs."""
    served = Coordinator(directory, *options)
    try:
        if start:
            served.start()
        yield served
    finally:
        if served.process is not None and served.process.poll() is None:
            served.kill()
