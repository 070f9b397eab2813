"""`rampmeter checkpoints` in a process of its own that kills itself at a named point, and that has no torch.

    python checkpoints_command.py POINT ls ROOT

The point is reached by a file operation that sends SIGKILL; nothing in the product knows of it. An empty POINT is never
reached; `stop POINT` sends SIGSTOP instead, once.
"""

import os
import signal
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

from rampmeter import cli


class NoTorch:
    """Refuses what a login node has not."""

    def find_spec(self, name, _path=None, _target=None):
        if name.partition(".")[0] in ("torch", "numpy"):
            raise ModuleNotFoundError(f"no {name} here", name=name)


def arm(point: str) -> None:
    """Send the signal when a file operation with this name is reached."""
    waiting = [(signal.SIGSTOP if point.startswith("stop ") else signal.SIGKILL, point.removeprefix("stop "))]
    rename, replace, unlink, rmdir, fsync = Path.rename, Path.replace, Path.unlink, Path.rmdir, os.fsync

    def reach(found: str) -> None:
        if waiting and waiting[0][1] and waiting[0][1] in found:
            number, _ = waiting.pop()
            os.kill(os.getpid(), number)

    def note(function, verb, name):
        def noting(self, *args, **kwargs):
            reach(f"before {verb} {name(self, *args)}")
            result = function(self, *args, **kwargs)
            reach(f"after {verb} {name(self, *args)}")
            return result

        return noting

    def target(_self, target):
        return Path(target).name

    Path.rename = note(rename, "rename", target)
    Path.replace = note(replace, "replace", target)
    Path.unlink = note(unlink, "unlink", lambda self, *_: self.name)
    Path.rmdir = note(rmdir, "rmdir", lambda self: self.name)
    os.fsync = note(fsync, "sync", lambda descriptor: Path(f"/proc/self/fd/{descriptor}").readlink().name)


if __name__ == "__main__":
    sys.meta_path.insert(0, NoTorch())
    arm(sys.argv[1])
    command = EntryPoint("checkpoints", "rampmeter.checkpoints.cli:CheckpointsCommand", cli.GROUP)
    cli.entry_points = lambda group: [command]
    sys.exit(cli.main(["checkpoints", *sys.argv[2:]]))
