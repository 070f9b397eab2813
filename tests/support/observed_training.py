"""A training process whose storage gets into trouble, and its observer.

As a program it trains until its input ends, and writes each event of its checkpointer as a line of JSON. Each step
fills the whole state with its number, so that a checkpoint says of every byte of which step it is.
"""

import dataclasses
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.servers import without_settings
from support.waiting import wait_for

STEP_S = 0.05
KEEP = 2
TESTS = Path(__file__).resolve().parents[1]
_STANDSTILL = "OBSERVED_STANDSTILL_S"
Event = dict[str, Any]


class ObservedJob:
    """The observer's side."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.events: list[Event] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def all(self, kind: str, since: int = 0) -> list[Event]:
        """Events of a kind, in order, from a mark on."""
        return [event for event in self.events[since:] if event["kind"] == kind]

    def wait(
        self,
        kind: str,
        condition: Callable[[Event], bool] = lambda _event: True,
        *,
        since: int = 0,
        limit_s: float = 60.0,
    ) -> Event:
        """The first such event from the mark on."""

        def found() -> Iterator[Event]:
            return (event for event in self.all(kind, since) if condition(event))

        wait_for(
            lambda: any(True for _ in found()) or self.process.poll() is not None,
            what=f"{kind} after {self.events[since:][-5:]}",
            limit_s=limit_s,
        )
        assert self.process.poll() is None, "the training process has ended"
        return next(found())

    @property
    def mark(self) -> int:
        """Now, as a place in `events`."""
        return len(self.events)

    def wait_until_writing(self, root: Path) -> Path:
        """A save holds a rate; its shard."""
        since = self.mark
        self.wait("SaveStarted", since=since)
        self.wait("RateChanged", lambda event: bool(event["bytes_per_s"]), since=since)
        wait_for(lambda: _shards(root), what="a shard")
        return _shards(root)[-1]

    def num_steps(self) -> int:
        """How far training has told that it is."""
        return max((event["step"] for event in self.all("Step")), default=0)

    def wait_for_steps(self, num: int) -> None:
        """Training goes on."""
        wanted = self.num_steps() + num
        wait_for(lambda: self.num_steps() >= wanted, what=f"{num} more steps")


def _shards(root: Path) -> list[Path]:
    """Of saves that are not committed."""
    return sorted(
        shard for shard in root.glob("step-*/*.distcp") if not (shard.parent / "MANIFEST.json").exists()
    )


@contextmanager
def observed(
    root: Path,
    url: str,
    num_bytes: int,
    log: Path,
    mode: str = "thread",
    full: Path | None = None,
    standstill_s: float | None = None,
) -> Iterator[ObservedJob]:
    """A job that trains under `root` until the end of the block, and then ends by itself with exit code 0.

    While the file `full` is there its storage has no room. A writer that hangs for `standstill_s` is given up; None =
    as the product does.
    """
    command = [sys.executable, "-m", "support.observed_training", str(root), url, str(num_bytes), str(log)]
    command += [mode] if full is None else [mode, str(full)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=TESTS,
        env=without_settings() | ({} if standstill_s is None else {_STANDSTILL: str(standstill_s)}),
    )
    job = ObservedJob(process)
    try:
        yield job
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(90) == 0, log.read_text()
    finally:
        process.kill()
        process.wait(15)


def restored_step(root: Path, num_bytes: int) -> int | None:
    """The step of the newest checkpoint; every value of it is of this step."""
    from rampmeter.restore import restore  # noqa: PLC0415 - torch only where it is needed

    state = _state(num_bytes)
    found = restore(root, state)
    if found is None:
        return None
    assert bool((state["table"] == found.step).all())
    return found.step


def _state(num_bytes: int) -> dict[str, Any]:
    import torch  # noqa: PLC0415

    return {"table": torch.zeros(num_bytes // 4)}


def _main(root: str, url: str, num_bytes: str, log: str, mode: str, full: str | None = None) -> None:
    """Train until the input ends."""
    import torch  # noqa: PLC0415

    from rampmeter import Checkpointer  # noqa: PLC0415
    from rampmeter.core.clock import SystemClock  # noqa: PLC0415
    from rampmeter.daemon import watch  # noqa: PLC0415
    from support.full_writer import FULL, FullWriter  # noqa: PLC0415

    logging.basicConfig(filename=log, level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    watch.STANDSTILL_S = float(os.environ.get(_STANDSTILL, watch.STANDSTILL_S))
    state, ended, clock = _state(int(num_bytes)), threading.Event(), SystemClock()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    options: dict[str, Any] = {"coordinator": url, "num_gpus": 8, "interval_max_s": 1.0, "keep": KEEP}
    options["mode"] = mode
    if full is not None:
        os.environ[FULL] = full
        options["writer_class"] = FullWriter
    with Checkpointer(root, on_event=_tell, **options) as ckpt:
        step = ckpt.restore(state) or 0
        while not ended.wait(STEP_S):
            step += 1
            state["table"].fill_(step)
            ckpt.step(step, state)
            if step % 4 == 0:
                _say({"kind": "Step", "step": step, "now_s": clock.now()})


def _tell(event: Any) -> None:
    _say({"kind": type(event).__name__} | dataclasses.asdict(event))


def _say(event: Event) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _main(*sys.argv[1:])
