"""Programs of several ranks: each rank a real process in a gloo group, forked from one that has imported torch.

A program is Python text that runs on all ranks; what it leaves in `answer` comes back, as JSON, or how it failed. It
finds `rank`, `world_size`, `group`, `root` (a Root), what `rank_training` has and what the test gives. A rank that does
not end in time is killed by its own alarm, and counts as hung.
"""

import faulthandler
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.servers import listening

LIMIT_S = 60


class Ranks:
    """Runs programs, one after another."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def run(self, world_size: int, root: Path, program: str, **given: Any) -> list[dict[str, Any]]:
        """What became of the ranks, by rank: `answer`, or `error` and `message`; `log` are the agent's warnings."""
        job = {"world_size": world_size, "root": str(root), "program": program, "given": given}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return [json.loads(self._lines.get(timeout=2 * LIMIT_S)) for _ in range(world_size)]

    def answers(self, world_size: int, root: Path, program: str, **given: Any) -> list[Any]:
        """As `run`, of a program that succeeds on all ranks."""
        outcomes = self.run(world_size, root, program, **given)
        assert all("answer" in outcome for outcome in outcomes), outcomes
        return [outcome["answer"] for outcome in outcomes]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)


@contextmanager
def rank_programs() -> Iterator[Ranks]:
    """Ends with the block."""
    with listening("support.rank_programs", limit_s=LIMIT_S) as process:
        yield Ranks(process)


def _run_job(job: dict[str, Any]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as directory:
        pids = []
        for rank in range(job["world_size"]):
            pid = os.fork()
            if pid == 0:
                signal.alarm(LIMIT_S)
                with Path(f"{directory}/{rank}.stacks").open("w") as stacks:
                    faulthandler.dump_traceback_later(LIMIT_S - 1, file=stacks)
                    outcome = _run_rank(job, rank, f"{directory}/meeting")
                Path(f"{directory}/{rank}").write_text(json.dumps(outcome))
                os._exit(0)
            pids.append(pid)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        return [
            json.loads(Path(f"{directory}/{rank}").read_text())
            if code == 0
            else _without_outcome(code, Path(f"{directory}/{rank}.stacks"))
            for rank, code in enumerate(codes)
        ]


def _without_outcome(code: int, stacks: Path) -> dict[str, Any]:
    if code != -signal.SIGALRM:
        return {"error": "died", "message": f"exit code {code}"}
    return {"error": "hung", "message": stacks.read_text()}


def _run_rank(job: dict[str, Any], rank: int, meeting: str) -> dict[str, Any]:
    import logging  # noqa: PLC0415

    import torch.distributed as dist  # noqa: PLC0415

    from support import rank_training  # noqa: PLC0415

    log: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: log.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("rampmeter").addHandler(handler)
    names = vars(rank_training) | job["given"] | {"rank": rank, "world_size": job["world_size"]}
    try:
        dist.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=rank, world_size=job["world_size"]
        )
        names |= {"group": dist.new_group(backend="gloo"), "root": rank_training.Root(job["root"])}
        exec(compile(job["program"], "program", "exec"), names)
    except BaseException as error:
        return {"error": type(error).__name__, "message": str(error), "log": log}
    return {"answer": names.get("answer"), "log": log}


def _main() -> None:
    import torch  # noqa: PLC0415
    import torch._dynamo  # noqa: PLC0415 - the first optimizer would import it, in each rank

    from support import rank_training  # noqa: F401, PLC0415 - what every program needs

    torch.set_num_threads(1)
    for line in sys.stdin:
        for outcome in _run_job(json.loads(line)):
            sys.stdout.write(json.dumps(outcome) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _main()
