"""Several `rampmeter serve` processes over one Redis, and who of them leads."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import httpx

from support.coordinator import Coordinator
from support.waiting import wait_for

OPTIONS = ("--fresh", "--capacity", "1GB/s")


class Replicas:
    """The processes of one deployment."""

    def __init__(
        self, directory: Path, store: str, *, count: int, options: tuple[str, ...] = OPTIONS
    ) -> None:
        self.members = []
        for number in range(count):
            where = directory / f"replica{number}"
            where.mkdir()
            self.members.append(Coordinator(where, "--store", store, *options))

    def start(self) -> None:
        """Start all and wait until one leads and the others know it."""
        for member in self.members:
            member.launch()
        for member in self.members:
            member.wait_until_ready()
        self.wait_until_served()

    def wait_until_served(self) -> None:
        """Every running replica answers, by itself or through the leader."""
        for member in self.running():
            wait_for(lambda m=member: _answers(m.url), what=f"{member.url} to serve")

    def running(self) -> list[Coordinator]:
        """Those that have not ended."""
        return [member for member in self.members if member.process and member.process.poll() is None]

    @property
    def urls(self) -> list[str]:
        """Where each of them answers."""
        return [member.url for member in self.members]

    def leader(self) -> Coordinator:
        """The one that says that it leads."""
        found = []

        def leads() -> bool:
            found[:] = [member for member in self.running() if metric(member.url, "rampmeter_leader") == 1.0]
            return len(found) == 1

        wait_for(leads, what="one leader")
        return found[0]


@contextlib.contextmanager
def replicas(
    directory: Path,
    store: str,
    *,
    count: int = 3,
    options: tuple[str, ...] = ("--fresh", "--capacity", "1GB/s"),
) -> Iterator[Replicas]:
    """Replicas that serve, killed at the end if they still run."""
    deployment = Replicas(directory, store, count=count, options=options)
    try:
        deployment.start()
        yield deployment
    finally:
        for member in deployment.running():
            member.kill()


def metric(url: str, name: str) -> float | None:
    """A figure without labels, or None if that process does not answer."""
    try:
        text = httpx.get(f"{url}/metrics", trust_env=False, timeout=2).text
    except httpx.HTTPError:
        return None
    return next((float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} ")), None)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/v1/pools/default", trust_env=False, timeout=2).status_code == 200
    except httpx.HTTPError:
        return False
