"""Redis servers on ports of loopback that tests stop, kill and start again, and a Sentinel that watches them."""

import contextlib
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import redis

from support.waiting import wait_for


class RedisProcess:
    """One server over one directory and port; may be frozen, killed and started again."""

    def __init__(self, directory: Path, *options: str, port: int | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.port = port or free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._directory = directory
        self._options = options

    @property
    def url(self) -> str:
        """Its URL."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [
            "redis-server",
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--dir",
            str(self._directory),
        ]
        with (self._directory / "redis.log").open("ab") as log:
            self.process = subprocess.Popen([*command, "--save", "", *self._options], stdout=log, stderr=log)
        wait_for(lambda: self.info() is not None, what="redis-server")

    def info(self) -> dict | None:
        """What it says of itself; None if it does not answer."""
        return self.call("INFO")

    def call(self, *command: str):
        """A command; None if it does not answer."""
        with contextlib.closing(redis.Redis(port=self.port, socket_timeout=0.5, retry=None)) as client:
            try:
                return client.execute_command(*command)
            except redis.RedisError:
                return None

    def freeze(self) -> None:
        """SIGSTOP."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()


class SentinelProcess(RedisProcess):
    """A sentinel with quorum 1 that watches `master` as service `rampmeter`."""

    def __init__(self, directory: Path, master: RedisProcess) -> None:
        super().__init__(directory)
        self._config = directory / "sentinel.conf"
        self._config.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {directory}\n"
            f"sentinel monitor rampmeter 127.0.0.1 {master.port} 1\n"
            "sentinel down-after-milliseconds rampmeter 1000\nsentinel failover-timeout rampmeter 5000\n"
        )

    @property
    def url(self) -> str:
        return f"redis+sentinel://127.0.0.1:{self.port}/rampmeter/0"

    def start(self) -> None:
        with (self._directory / "sentinel.log").open("ab") as log:
            command = ["redis-server", str(self._config), "--sentinel"]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for(lambda: self.call("PING"), what="the sentinel")

    def master_port(self) -> int | None:
        """The port of the master, as the sentinel says."""
        found = self.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "rampmeter")
        return int(found[1]) if found else None

    def num_replicas(self) -> int:
        """How many replicas it can use now."""
        found = self.call("SENTINEL", "REPLICAS", "rampmeter") or []
        flags = [row[b"flags"] if isinstance(row, dict) else row[row.index(b"flags") + 1] for row in found]
        return sum(_text(flag) == "slave" for flag in flags)


@contextlib.contextmanager
def running_redis(*servers: RedisProcess) -> Iterator[None]:
    """Start them in order; kill those that still run at the end."""
    try:
        for server in servers:
            server.start()
        yield
    finally:
        for server in servers:
            if server.process is not None and server.process.poll() is None:
                server.kill()


@contextlib.contextmanager
def sentinel_service(
    directory: Path,
) -> Iterator[tuple[RedisProcess, RedisProcess, RedisProcess, SentinelProcess]]:
    """A master, two replicas and the sentinel that watches them, once it knows them all."""
    careful = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "3")
    master = RedisProcess(directory / "master", *careful)
    follower, lagging = (
        RedisProcess(directory / name, "--replicaof", "127.0.0.1", str(master.port), *careful)
        for name in ("follower", "lagging")
    )
    sentinel = SentinelProcess(directory / "sentinel", master)
    with running_redis(master, follower, lagging, sentinel):
        wait_for(lambda: sentinel.num_replicas() == 2, what="the sentinel to know both replicas")
        wait_for(
            lambda: (master.info() or {}).get("min_slaves_good_slaves") == 2, what="both replicas to follow"
        )
        yield master, follower, lagging, sentinel


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _text(value) -> str:
    return value.decode() if isinstance(value, bytes) else value
