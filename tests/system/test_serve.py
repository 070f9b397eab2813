"""`rampmeter serve` as a process: held requests, disconnects, kills, signals, and what it says when it cannot start."""

import asyncio
import json
import signal
import socket
import subprocess
import threading

import httpx
import pytest

from rampmeter.core.decode import encode
from support.coordinator import coordinator
from support.http_job import HttpJob
from support.redis_server import redis_server
from support.servers import PROGRAMS, without_settings
from support.waiting import until, wait_for

pytestmark = pytest.mark.system

OPTIONS = ("--fresh", "--capacity", "1GB/s")
NUM_HELD = 200


def held_now(client):
    """How many requests the coordinator holds."""
    lines = client.get("/metrics").text.splitlines()
    (line,) = [line for line in lines if line.startswith("rampmeter_requests_held{")]
    return float(line.split()[-1])


def writing_job(client):
    """A job that holds the whole budget under a renewed lease."""
    job = HttpJob()
    job.enter(client)
    large = job.slot(num_bytes=10**13)  # so that nobody is armed in view of its end
    assert job.send(client, large).json()["bytes_per_s"] == 800_000_000
    assert job.send(client, job.renew(held=800_000_000)).json()["answer"] == "grant"
    return job


class Held(threading.Thread):
    """A request in a thread of its own, with the answer that it gets."""

    def __init__(self, served, job, request):
        super().__init__()
        self._send = lambda client: job.send(client, request)
        self._served = served
        self.response = None
        self.start()

    def run(self):
        with self._served.client() as client:
            self.response = self._send(client)


def run_serve(*options):
    """`rampmeter serve` that is expected to end by itself."""
    command = [PROGRAMS / "rampmeter", "serve", *options]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=without_settings()
    )


def test_a_held_slot_request_is_answered_by_the_release_of_another_job(tmp_path):
    """The waiter's open request comes back with the grant as soon as the writer releases."""
    with coordinator(tmp_path, *OPTIONS) as served, served.client() as client:
        writer, waiter = writing_job(client), HttpJob()
        waiter.enter(client)
        held = Held(served, waiter, waiter.slot())
        wait_for(lambda: held_now(client) == 1, what="the request to be held")
        assert held.is_alive()
        writer.send(client, writer.release())
        held.join(10)
        assert held.response.json()["answer"] == "grant"
        assert held.response.json()["bytes_per_s"] == 800_000_000


def test_a_client_that_goes_away_gives_up_its_place(tmp_path):
    """When the connection of a held request closes, nothing is granted to its job any more."""
    with coordinator(tmp_path, *OPTIONS) as served, served.client() as client:
        writer, waiter = writing_job(client), HttpJob()
        waiter.enter(client)
        request = waiter.slot()
        body = encode(request)
        head = f"POST {waiter.url(request)} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(served.url.removeprefix("http://").split(":")) as connection:
            connection.sendall(head.encode() + body)
            wait_for(lambda: held_now(client) == 1, what="the request to be held")
        wait_for(lambda: held_now(client) == 0, what="the waiter to go")
        writer.send(client, writer.release())
        assert client.get("/v1/pools/default").json()["num_leases"] == 0


def test_a_live_lease_survives_kill_9(tmp_path):
    """After kill -9 and a restart on the same directory the lease is renewed under the same fence, without grace."""
    with coordinator(tmp_path, *OPTIONS) as served:
        with served.client() as client:
            writer = writing_job(client)
            number, fence = served.number(), writer.fence
        served.kill()
        served.start()
        with served.client() as client:
            assert served.number() > number
            assert not client.get("/v1/pools/default").json()["in_grace"]
            (lease,) = client.get("/v1/pools/default/leases").json()["leases"]
            assert lease["bytes_per_s"] == 800_000_000
            grant = writer.send(client, writer.renew(held=800_000_000)).json()
            assert grant["answer"] == "grant"
            assert grant["bytes_per_s"] == 800_000_000
            assert writer.fence == fence
            newcomer = HttpJob()
            newcomer.enter(client)
            writer.send(client, writer.release())
            newcomer.send(client, newcomer.slot())
            assert newcomer.fence > fence


def test_hundreds_of_held_requests_hold_up_nobody(tmp_path):
    """With 200 open requests health, figures and a release answer quickly, and every socket is given back."""

    async def scenario(served):
        limits = httpx.Limits(max_connections=NUM_HELD + 10, max_keepalive_connections=0)
        async with httpx.AsyncClient(base_url=served.url, timeout=60, limits=limits) as client:
            writer, jobs = HttpJob(), [HttpJob() for _ in range(NUM_HELD)]
            for job in (writer, *jobs):
                await job.asend(client, job.register())
                await job.asend(client, job.heartbeat())
            await writer.asend(client, writer.slot(num_bytes=16 * 10**9))  # 20 s: near enough to be held
            await writer.asend(client, writer.renew(held=800_000_000))
            small = [job.slot(num_bytes=1000) for job in jobs]
            held = [
                asyncio.ensure_future(job.asend(client, ask)) for job, ask in zip(jobs, small, strict=True)
            ]
            await until(lambda: served.num_sockets() > NUM_HELD, what="all requests to arrive")
            for path in ("/livez", "/metrics", "/readyz", "/v1/pools/default"):
                response = await asyncio.wait_for(client.get(path), timeout=5)
                assert response.status_code == 200, path
            assert not any(future.done() for future in held)
            released = await asyncio.wait_for(writer.asend(client, writer.release()), timeout=5)
            assert released.status_code == 200
            done, _ = await asyncio.wait(held, timeout=10, return_when=asyncio.FIRST_COMPLETED)
            assert done.pop().result().json()["answer"] == "grant"
            for future in held:
                future.cancel()
            await asyncio.gather(*held, return_exceptions=True)

    with coordinator(tmp_path, *OPTIONS) as served:
        before = served.num_sockets()
        asyncio.run(scenario(served))
        wait_for(lambda: served.num_sockets() == before, what="the sockets to be closed")
        with served.client() as client:
            wait_for(lambda: held_now(client) == 0, what="the waiters to go")
        assert "Traceback" not in served.log()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_answers_everybody_and_exits_with_0(tmp_path, number):
    """Held requests get 503 draining with a time to come back; the process is gone within 10 s, exit code 0."""
    with coordinator(tmp_path, *OPTIONS) as served:
        with served.client() as client:
            writing_job(client)
            waiters = [HttpJob() for _ in range(5)]
            for waiter in waiters:
                waiter.enter(client)
            held = [Held(served, waiter, waiter.slot()) for waiter in waiters]
            wait_for(lambda: held_now(client) == len(held), what="the requests to be held")
            served.process.send_signal(number)
            assert served.process.wait(10) == 0
        for waiting in held:
            waiting.join(10)
            assert waiting.response.status_code == 503
            assert waiting.response.json()["reason"] == "draining"
            assert 1 <= int(waiting.response.headers["retry-after"]) <= 5
        assert "Traceback" not in served.log()
        served.start()  # and the lock, the port and the store are free again


def test_a_client_that_leaves_in_the_middle_of_a_request_is_no_news(tmp_path):
    """Half a body and gone: the socket is given back and the log has no traceback."""
    with coordinator(tmp_path, *OPTIONS) as served:
        before = served.num_sockets()
        for _ in range(3):
            with socket.create_connection(served.url.removeprefix("http://").split(":")) as connection:
                connection.sendall(
                    b"POST /v1/pools/default/slots HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{"
                )
                wait_for(lambda: served.num_sockets() > before, what="the connection to be taken")
        wait_for(lambda: served.num_sockets() == before, what="the sockets to be closed")
        with served.client() as client:
            wait_for(lambda: '/slots",status="4xx"} 3.0' in client.get("/metrics").text, what="their end")
        assert "Traceback" not in served.log()


def test_an_idle_connection_outlives_a_heartbeat(tmp_path):
    """A connection that was idle for longer than uvicorn's default of 5 s still serves the next request."""
    with (
        coordinator(tmp_path, *OPTIONS) as served,
        socket.create_connection(served.url.removeprefix("http://").split(":")) as connection,
    ):
        connection.settimeout(7)
        _ask_whether_it_lives(connection)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        _ask_whether_it_lives(connection)


def _ask_whether_it_lives(connection):
    connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
    received = b""
    while b"alive" not in received:
        piece = connection.recv(4096)
        assert piece, "the connection was closed"
        received += piece


def test_it_says_where_it_listens_and_what_it_does(tmp_path):
    """One line with the URL on standard output, and logs that a collector can parse."""
    with coordinator(tmp_path, *OPTIONS, "--json-logs") as served:
        lines = served.log().splitlines()
        assert f"rampmeter serves {served.url}" in lines
        logged = [json.loads(line) for line in lines if line.startswith("{")]
        assert any("may be granted" in line["message"] for line in logged)
        assert all(line.keys() >= {"time", "level", "logger", "message"} for line in logged)


def test_a_second_coordinator_on_the_same_directory_is_refused(tmp_path):
    """Exit code 2 and one line that says who has it."""
    with coordinator(tmp_path, *OPTIONS) as served:
        second = run_serve("--port", "0", "--data-dir", str(served.data_dir), "--capacity", "1GB/s")
        assert second.returncode == 2
        assert f"belongs to a running coordinator (process {served.process.pid})" in second.stderr
        assert "Traceback" not in second.stderr


def test_a_port_in_use_is_refused(tmp_path):
    """Exit code 2 and one line that names host and port."""
    with coordinator(tmp_path, *OPTIONS) as served:
        port = served.url.rsplit(":", 1)[1]
        second = run_serve("--port", port, "--data-dir", str(tmp_path / "other"), "--capacity", "1GB/s")
        assert second.returncode == 2
        assert f"host 127.0.0.1, port {port} cannot be listened on" in second.stderr
        assert "Traceback" not in second.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--capacity", "fast"), 'option --capacity: "fast" is no rate'),
        (("--port", "x"), "option --port: must be an integer"),
        (("--config", "/nowhere.toml"), "/nowhere.toml cannot be read"),
        (
            ("--host", "no.such.host.invalid", "--capacity", "1GB/s"),
            "host no.such.host.invalid cannot be used",
        ),
    ],
)
def test_bad_settings_are_exit_code_2(options, says):
    """One line that names the option, no traceback."""
    ended = run_serve(*options)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_store_that_is_not_there_is_exit_code_1():
    """Not a wrong setting but a reason for the supervisor to try again."""
    ended = run_serve("--port", "0", "--store", "redis://127.0.0.1:1", "--capacity", "1GB/s")
    assert ended.returncode == 1
    assert "cannot serve: Redis" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_help_has_an_example():
    """`rampmeter serve --help` shows a command that works."""
    shown = run_serve("--help")
    assert shown.returncode == 0
    assert "rampmeter serve --capacity 100GB/s --data-dir" in shown.stdout


@pytest.mark.debian("redis-server")
def test_redis_keeps_a_lease_over_a_restart_and_an_empty_redis_means_grace(tmp_path):
    """kill -9 of the coordinator loses nothing; a Redis that comes back empty is noticed, and there is grace."""
    (tmp_path / "redis").mkdir()
    with coordinator(
        tmp_path, *OPTIONS, "--store", f"unix://{tmp_path}/redis/redis.sock", start=False
    ) as served:
        with redis_server(tmp_path / "redis"):
            served.start()
            with served.client() as client:
                writer = writing_job(client)
            served.kill()
            served.start()
            with served.client() as client:
                wait_for(  # the dead one's lead lasts for 3 s more
                    lambda: client.get("/v1/pools/default").status_code == 200, what="its lead"
                )
                assert not client.get("/v1/pools/default").json()["in_grace"]
                assert writer.send(client, writer.renew(held=800_000_000)).json()["answer"] == "grant"
        with served.client() as client:
            assert client.get("/readyz").status_code == 503
            assert client.get("/livez").status_code == 200
            refused = writer.send(client, writer.heartbeat())
            assert (refused.status_code, refused.headers["content-type"]) == (503, "application/problem+json")
            with redis_server(tmp_path / "redis"):
                wait_for(lambda: client.get("/readyz").status_code == 200, what="readiness")
                assert client.get("/v1/pools/default").json()["in_grace"]
                assert writer.send(client, writer.heartbeat()).json()["reason"] == "unknown_job"
        assert "Traceback" not in served.log()
