"""Jobs whose ranks are real processes, forked by a parent that imported torch once; what they tell, line by line."""

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from support.waiting import wait_for

LIMIT_S = 90.0
Parent = subprocess.Popen[str]


class Job:
    """What one job tells."""

    def __init__(self, parent: Parent, options: dict[str, Any], end: Path) -> None:
        self.told: list[dict[str, Any]] = []
        self._end = end
        assert parent.stdin is not None
        parent.stdin.write(json.dumps(options) + "\n")
        parent.stdin.flush()
        self._reader = threading.Thread(target=self._read, args=(parent,), daemon=True)
        self._reader.start()

    def _read(self, parent: Parent) -> None:
        assert parent.stdout is not None
        for line in parent.stdout:
            said = json.loads(line)
            if said["what"] == "over":
                return
            self.told.append(said)

    def find(self, what: str, **more: Any) -> list[dict[str, Any]]:
        wanted = {"what": what, **more}
        return [said for said in list(self.told) if wanted.items() <= said.items()]

    def wait(self, what: str, **more: Any) -> dict[str, Any]:
        wait_for(lambda: self.find(what, **more), what=f"{what} {more}", limit_s=LIMIT_S)
        return self.find(what, **more)[0]

    def send(self, rank: int, number: signal.Signals) -> None:
        os.kill(self.wait("started", rank=rank)["pid"], number)

    def end(self) -> None:
        self._reader.join(LIMIT_S)
        assert not self._reader.is_alive(), self.told

    def finish(self) -> None:
        """Training is through: ranks that look for this file leave their loop."""
        self._end.touch()

    def codes(self) -> list[int]:
        return [said["code"] for said in sorted(self.find("exited"), key=lambda said: said["rank"])]

    def kill(self, *ranks: int) -> None:
        """Whatever of it still runs, or of these ranks."""
        for said in self.find("started") + self.find("begun"):
            if said["rank"] in (ranks or range(len(self.told))) and not self.find(
                "exited", rank=said["rank"]
            ):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(said["pid"], signal.SIGKILL)


@contextlib.contextmanager
def starting(parent: Parent, file: Path) -> Iterator[Callable[..., Job]]:
    """Starts jobs of so many ranks, one after the other; whatever runs at the end is killed."""
    jobs: list[Job] = []

    def start(num_ranks: int, **options: Any) -> Job:
        name = f"{file}.{len(jobs)}"  # a process group wants a file of its own
        end = file.with_name(f"{file.name}.{len(jobs)}.end")
        jobs.append(Job(parent, {"num_ranks": num_ranks, "file": name, "end": str(end), **options}, end))
        return jobs[-1]

    yield start
    for job in jobs:
        job.kill()
        job.end()
