"""Server CPU of one request over HTTP: a slot cycle (register, slot, renew, ready, release) on kept-alive connections.

A real `rampmeter serve` in a process of its own, over SQLite or a real Redis server; 32 and 256 connections, a job on
each, the next request after the answer. Counted is utime + stime of the serving process, all threads. The entry is that
of the number of connections that costs more.
"""

import asyncio
import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

from benchmarks.fleet import uid_of
from benchmarks.summary import Result, summary
from rampmeter.core.decode import decode_answer, encode
from rampmeter.core.messages import (
    AnyAnswer,
    Fence,
    Grant,
    Heartbeat,
    Kind,
    Outcome,
    Ready,
    Register,
    Release,
    Renew,
    Request,
    SlotRequest,
)
from support.coordinator import Coordinator, coordinator
from support.examples import PATHS
from support.redis_server import redis_server

STORES = ("sqlite", "redis")
CONNECTIONS = (32, 256)
NUM_RUNS = 5
NUM_REQUESTS = 6000
"""Of one run."""

CAPACITY = "2TB/s"
_R_MAX = 10**9
_NUM_BYTES = 10**9
_DONE = {"throttled_s": 0.0, "blocked_s": 0.0, "busy_s": 0.0}


def measure(directory: Path) -> dict[str, Result]:
    """CPU microseconds per request for each store."""
    results = {}
    for kind in STORES:
        runs = {}
        for count in CONNECTIONS:
            with serving(kind, directory) as served:
                runs[count] = asyncio.run(all_runs(served, count))
        slower = max(runs, key=lambda count: statistics.median(runs[count]))
        results[f"http.cpu_us_per_request.{kind}"] = summary(runs[slower], "us", connections=slower)
    return results


@contextmanager
def serving(kind: str, directory: Path) -> Iterator[Coordinator]:
    """A coordinator over an empty store of that kind."""
    with tempfile.TemporaryDirectory(dir=directory) as name:
        place = Path(name)
        if kind == "sqlite":
            with coordinator(place, "--fresh", "--capacity", CAPACITY) as served:
                yield served
        else:
            with (
                redis_server(place) as url,
                coordinator(place, "--fresh", "--capacity", CAPACITY, "--store", url) as served,
            ):
                yield served


async def all_runs(served: Coordinator, count: int) -> list[float]:
    """CPU microseconds per request in some runs, after one that warms up."""
    clients = [await Client.connect(served, uid_of(number)) for number in range(count)]
    await one_run(served, clients)
    runs = [await one_run(served, clients) for _ in range(NUM_RUNS)]
    for client in clients:
        client.close()
    return runs


async def one_run(served: Coordinator, clients: "list[Client]") -> float:
    """CPU microseconds per request; every client ends its cycle."""
    num_cycles = NUM_REQUESTS // len(Client.ACTS) // len(clients)
    before_s = cpu_s(served.process.pid)
    await asyncio.gather(*(client.save(num_cycles) for client in clients))
    used_s = cpu_s(served.process.pid) - before_s
    return used_s / (num_cycles * len(Client.ACTS) * len(clients)) * 1e6


def cpu_s(pid: int) -> float:
    """utime + stime of a process, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Client(asyncio.Protocol):
    """One connection with one job. Knows as much of HTTP as it needs, so that the machine is left to the server."""

    ACTS = (Register, SlotRequest, Renew, Ready, Release)

    def __init__(self, uid: str, pool: str) -> None:
        self.uid, self.pool, self.seq, self.ack = uid, pool, 0, 0
        self.fence = Fence(epoch=0, counter=0)
        self._acts = cycle(self.ACTS)
        self._received = b""
        self._answer: asyncio.Future[bytes]

    @classmethod
    async def connect(cls, served: Coordinator, uid: str, pool: str = "default") -> "Client":
        """A new connection for a job."""
        client = cls(uid, pool)
        await client.reconnect(served)
        return client

    async def reconnect(self, served: Coordinator) -> None:
        """Go on over a new connection."""
        host, port = served.url.removeprefix("http://").split(":")
        await asyncio.get_running_loop().create_connection(lambda: self, host, int(port))

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if found and len(body) >= int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]):
            self._received = b""
            assert head.startswith(b"HTTP/1.1 200"), (head, body)
            self._answer.set_result(body)

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        """Break the connection off, as a machine does that dies."""
        self._transport.abort()

    async def save(self, num_cycles: int) -> None:
        """So many saves, as fast as the answers come."""
        for _ in range(num_cycles * len(self.ACTS)):
            await self.tell(self.word(next(self._acts)))

    async def tell(self, request: Request) -> AnyAnswer:
        """Send a request, hear its answer."""
        body = encode(request)
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(
            b"POST /v1/pools/%s/%s HTTP/1.1\r\nHost: rampmeter\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s"
            % (self.pool.encode(), PATHS[type(request)].encode(), len(body), body)
        )
        answer = decode_answer(await self._answer)
        self.ack = answer.seq
        if isinstance(answer, Grant):
            self.fence = answer.fence
        return answer

    def word(self, message: type[Request], **more: object) -> Request:
        """The next request of the job."""
        self.seq += 1
        return message(
            job_uid=self.uid, attempt=1, seq=self.seq, ack=self.ack, **(self._fields(message) | more)
        )

    def _fields(self, message: type[Request]) -> dict[str, object]:
        if message is Register:
            return {
                "name": "run",
                "claim": self.uid,
                "num_gpus": 256,
                "num_bytes": _NUM_BYTES,
                "stall_s": 1.5,
            }
        if message is SlotRequest:
            asked = {"kind": Kind.WRITE, "num_bytes": _NUM_BYTES, "ready_in_s": 0.0, "age_s": 1e6}
            return asked | {"max_bytes_per_s": _R_MAX}
        if message is Renew:
            return {"fence": self.fence, "held_bytes_per_s": _R_MAX, "done_bytes": 10**8} | _DONE
        if message is Heartbeat:
            return {}
        if message is Ready:
            return {"fence": self.fence, "lead_s": 0.1}
        done = {"outcome": Outcome.COMMITTED, "done_bytes": _NUM_BYTES, "stall_s": 1.5, "write_s": 5.0}
        return {"fence": self.fence} | done | _DONE
