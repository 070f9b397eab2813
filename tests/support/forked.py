"""Programs that use torch, each in a process of its own that is there at once: forks of one that has imported it.

A program is Python text. It ends as any program does, with its exceptions, exit handlers and exit code.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from support.servers import listening
from support.waiting import wait_for

LIMIT_S = 60.0


class Program:
    """One that runs, or ran. `lines` is what it has printed."""

    def __init__(self) -> None:
        self.pid: int | None = None
        self.lines: list[str] = []
        self.exit_code: int | None = None

    def kill(self) -> None:
        """SIGKILL, and its end."""
        assert self.pid is not None
        os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        """Its exit code; minus the signal that ended it."""
        wait_for(lambda: self.exit_code is not None, what=f"the end after {self.lines}", limit_s=LIMIT_S)
        assert self.exit_code is not None
        return self.exit_code

    def wait_for(self, line: str) -> None:
        """It has printed this line."""
        wait_for(
            lambda: line in self.lines or self.exit_code is not None,
            what=f"{line} after {self.lines}",
            limit_s=LIMIT_S,
        )
        assert line in self.lines


class Nursery:
    """Starts programs, one at a time."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._program = Program()
        threading.Thread(target=self._read, daemon=True).start()

    def start(self, text: str) -> Program:
        """Start a program; the one before has ended."""
        program = self._program = Program()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(text) + "\n")
        self._process.stdin.flush()
        wait_for(lambda: program.pid is not None, what="a process", limit_s=LIMIT_S)
        return program

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word == "@pid":
                self._program.pid = int(rest)
            elif word == "@end":
                self._program.exit_code = int(rest)
            else:
                self._program.lines.append(line.strip())


@contextmanager
def nursery() -> Iterator[Nursery]:
    """Ends with the block."""
    with listening("support.forked", limit_s=LIMIT_S) as process:
        yield Nursery(process)


def _main() -> None:
    import torch  # noqa: PLC0415

    import rampmeter.checkpointer  # noqa: F401, PLC0415 - what every program needs

    torch.set_num_threads(1)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            exec(compile(json.loads(line), "program", "exec"), {"__name__": "__main__"})
            return
        sys.stdout.write(f"@pid {pid}\n")
        sys.stdout.flush()
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"@end {os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _main()
