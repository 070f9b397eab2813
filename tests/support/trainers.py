"""Starts trainers whose saves a writer process makes (`support.hired_trainer`), and hears what becomes of them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from rampmeter.layout import Root


class Trainers:
    """Starts one after another."""

    def __init__(self, where: Path) -> None:
        self.root = Root(where / "root")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.hired_trainer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert self.hears()["what"] == "ready"

    def hears(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())  # type: ignore[no-any-return]

    def begin(self, **job: Any) -> dict[str, Any]:
        """What a trainer tells that is there, and as far with its save as the job says."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"root": str(self.root.path), **job}).encode() + b"\n")
        self._process.stdin.flush()
        return self.hears()

    def start(self, **job: Any) -> tuple[int, int]:
        """The pids of a trainer that is there and of its writer."""
        told = self.begin(**job)
        return told["pid"], told["writer"]

    def written_bytes(self) -> int:
        """Of tensors, in all checkpoints."""
        return sum(file.stat().st_size for file in self.root.path.glob("step-*/*.distcp"))

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
