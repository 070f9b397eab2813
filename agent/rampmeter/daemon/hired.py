"""A writer process as training sees it: started, given orders, heard, ended. Decides nothing.

Started by exec, never by fork: no state of training gets in, nor does the training script, which would train once more.
All that both share is inherited as descriptors without names: nothing stays behind, whoever is killed.
"""

import contextlib
import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
from typing import Any

from rampmeter.core.errors import RampmeterError
from rampmeter.daemon.arena import Arena
from rampmeter.daemon.cell import Cell
from rampmeter.daemon.parcel import Met, Order, Outcome, sealed_state
from rampmeter.daemon.records import new_memory
from rampmeter.daemon.tidings import TidingsCell

STARTED = b"started"
_MESSAGE_BYTES = 64 * 1024
_CODE = (
    "import signal; [signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)];"
    "import json, sys; told = json.loads(sys.argv[1]); sys.path[:] = told.pop('path');"
    "from rampmeter.daemon.serving import serve; serve(**told)"
)
"""Signals that announce the end of the job are training's to answer: the save that follows them is written here."""


class WriterLost(RampmeterError):
    """The process has ended, or was never there. The message goes on after "it"."""


class HiredWriter:
    """One process. Used by one thread at a time, except for `kill`."""

    def __init__(self) -> None:
        cells = [new_memory(), new_memory()]
        self.steering, self.tidings = Cell(cells[0]), TidingsCell(cells[1])
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._arena_version = 0
        try:
            self._process = _started(theirs.fileno(), *cells)
        except BaseException:
            self._socket.close()
            raise
        finally:
            theirs.close()
            for descriptor in cells:
                os.close(descriptor)

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def has_started(self, limit_s: float) -> bool:
        """Wait up to `limit_s` for it to be ready for orders. WriterLost if it has ended."""
        message = self._heard(limit_s)
        if message is not None and message != STARTED:
            raise WriterLost(f"said {message[:100]!r}")
        return message is not None

    def take(self, order: Order, placed: dict[str, Any], arena: Arena) -> None:
        """Hand over an order with a snapshot that stands in the arena. WriterLost if it has ended."""
        letter = new_memory()
        try:
            with os.fdopen(letter, "wb", closefd=False) as file:
                pickle.dump((order, sealed_state(placed)), file, protocol=pickle.HIGHEST_PROTOCOL)
            descriptors = [letter]
            if self._arena_version != arena.version:
                assert arena.descriptor is not None
                descriptors.append(arena.descriptor)
            self._send(str(arena.num_bytes).encode(), descriptors)
            self._arena_version = arena.version
        finally:
            os.close(letter)

    def outcome(self, limit_s: float) -> Outcome | None:
        """How the save has ended, or that it will fail, if that is told within `limit_s`.

        WriterLost if the process has ended.
        """
        message = self._heard(limit_s)
        return None if message is None else Outcome.from_bytes(message)

    def go_on(self, met: Met) -> None:
        """Tell a writer that waits for those of the other ranks that all are there. WriterLost if it has ended."""
        self._send(met.to_bytes(), [])

    def _send(self, message: bytes, descriptors: list[int]) -> None:
        try:
            socket.send_fds(self._socket, [message], descriptors)
        except OSError as error:
            raise self._lost() from error

    def _heard(self, limit_s: float) -> bytes | None:
        readable, _, _ = select.select([self._socket], [], [], limit_s)
        if not readable:
            return None
        try:
            message = self._socket.recv(_MESSAGE_BYTES)
        except OSError as error:
            raise self._lost() from error
        if not message:
            raise self._lost()
        return message

    def _lost(self) -> WriterLost:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        return WriterLost(f"has ended ({_ending(self._process.returncode)})")

    def end(self, limit_s: float) -> None:
        """It goes when it has nothing to do; else it is killed after `limit_s`."""
        self._socket.close()
        try:
            self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it now, also one that is stopped. One that hangs in the kernel ends when that lets go of it."""
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)


def _started(connection: int, steering: int, tidings: int) -> "subprocess.Popen[bytes]":
    told = {"path": sys.path, "connection": connection, "steering": steering, "tidings": tidings}
    return subprocess.Popen(
        [sys.executable, "-c", _CODE, json.dumps(told)],
        stdin=subprocess.DEVNULL,
        pass_fds=(connection, steering, tidings),
    )


def _ending(code: int | None) -> str:
    if code is None:
        return "its socket is closed"
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
