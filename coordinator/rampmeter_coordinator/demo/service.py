"""The demo's own coordinator: a real `rampmeter serve` on a free loopback port, started and ended by its pid."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from rampmeter.core.clock import SystemClock
from rampmeter.core.units import format_rate
from rampmeter_coordinator.demo.errors import DemoFailed

_START_LIMIT_S = 30.0
_STOP_LIMIT_S = 10.0
_POLL_S = 0.02
_RUN = "import sys; from rampmeter.cli import main; sys.exit(main())"


class Service:
    """The coordinator process. `url` is the same after a restart."""

    def __init__(self, directory: Path, capacity_bytes_per_s: int) -> None:
        self.url = ""
        self._directory = directory
        self._capacity = capacity_bytes_per_s
        self._clock = SystemClock()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True)
        self._start("--fresh", "--port", "0")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def kill(self) -> None:
        """kill -9: no goodbye to anybody."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def start_again(self) -> None:
        """On the same data directory and port, as a supervisor would. Returns when it serves."""
        self._start("--port", self.url.rpartition(":")[2].strip("/"))

    def _start(self, *options: str) -> None:
        ready = self._directory / "url"
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-c", _RUN, "serve", "--host", "127.0.0.1", "--ready-file", str(ready)]
        command += ["--capacity", format_rate(self._capacity), "--data-dir", str(self._directory / "store")]
        with (self._directory / "coordinator.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={name: value for name, value in os.environ.items() if not name.startswith("RAMPMETER")},
                start_new_session=True,  # Ctrl-C is for the demo, which ends us in order
            )
        self._await_ready(ready, self._process)

    def _await_ready(self, ready: Path, process: subprocess.Popen[bytes]) -> None:
        limit_s = self._clock.now() + _START_LIMIT_S
        while not ready.exists():
            if process.poll() is not None or self._clock.now() > limit_s:
                log = (self._directory / "coordinator.log").read_text(errors="replace")
                self._end()
                raise DemoFailed(f"the coordinator did not start:\n{log[-2000:]}")
            self._clock.sleep(_POLL_S)
        self.url = ready.read_text().strip()

    def _end(self) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(_STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
