"""Two `rampmeter serve` over one Redis: the standby speaks for the leader, and takes its place when it stops."""

import contextlib
import signal
import socket
import threading
import time

import httpx
import pytest

from rampmeter.core.decode import encode
from support.http_job import HttpJob
from support.redis_server import redis_server
from support.replicas import Replicas, metric, replicas
from support.waiting import wait_for

pytestmark = [pytest.mark.system, pytest.mark.debian("redis-server")]


@pytest.fixture
def pair(tmp_path):
    """(deployment, leader, standby), both serving."""
    with _pair_in(tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def lasting_pair(tmp_path_factory):
    """The same for tests that stop nobody and leave nothing that another of them reads."""
    with _pair_in(tmp_path_factory.mktemp("lasting")) as found:
        yield found


@contextlib.contextmanager
def _pair_in(directory):
    (directory / "redis").mkdir()
    with redis_server(directory / "redis") as url, replicas(directory, url, count=2) as deployment:
        leader = deployment.leader()
        (standby,) = (member for member in deployment.members if member is not leader)
        yield deployment, leader, standby


def writer_and_waiter(client):
    """A job that has the whole budget, and one that has registered."""
    writer, waiter = HttpJob(), HttpJob()
    for job in (writer, waiter):
        job.enter(client)
    large = writer.slot(num_bytes=10**13)  # so that nobody is armed in view of its end
    assert writer.send(client, large).json()["answer"] == "grant"
    assert writer.send(client, writer.renew(held=800_000_000)).json()["answer"] == "grant"
    return writer, waiter


def held_at(leader):
    """How many requests the leader holds."""
    lines = httpx.get(f"{leader.url}/metrics", trust_env=False).text.splitlines()
    (line,) = [line for line in lines if line.startswith("rampmeter_requests_held{")]
    return float(line.split()[-1])


class Held(threading.Thread):
    """A request in a thread of its own, with the answer that it gets."""

    def __init__(self, member, job, request):
        super().__init__()
        self._member, self._job, self._request = member, job, request
        self.response = None
        self.start()

    def run(self):
        with self._member.client() as client:
            self.response = self._job.send(client, self._request)


def test_a_standby_answers_as_the_leader_does(lasting_pair):
    """Reads, answers and problems come back with the same status, body, type and Retry-After."""
    _, leader, standby = lasting_pair
    with leader.client() as there, standby.client() as here:
        job = HttpJob()
        request = job.register()
        assert job.send(here, request).content == job.send(there, request).content
        for path in ("/v1/pools", "/v1/pools/default/jobs?limit=1", "/v1/pools/nowhere", "/nowhere", "/"):
            ours, theirs = here.get(path), there.get(path)
            assert ours.status_code == theirs.status_code, path
            for name in ("content-type", "content-security-policy", "rampmeter-protocol"):
                assert ours.headers.get_list(name) == theirs.headers.get_list(name), (path, name)
        bad = here.post("/v1/pools/default/slots", content=b"{}")
        assert (bad.status_code, bad.headers["content-type"]) == (422, "application/problem+json")
        large = here.post("/v1/pools/default/slots", content=b"x" * 100_000)
        assert (large.status_code, large.json()["reason"]) == (413, "too_large")
        assert here.get("/v1/pools/default/jobs").json()["num_jobs"] == 1


def test_health_and_figures_are_those_of_the_process(lasting_pair):
    """Both are alive and ready, one leads, and only that one speaks of pools to Prometheus."""
    _, leader, standby = lasting_pair
    for member in (leader, standby):
        with member.client() as client:
            assert client.get("/livez").status_code == 200
            assert client.get("/readyz").status_code == 200
    assert (metric(leader.url, "rampmeter_leader"), metric(standby.url, "rampmeter_leader")) == (1.0, 0.0)
    with standby.client() as client:
        client.get("/v1/pools/default")
        figures = client.get("/metrics").text
        assert "rampmeter_granted_bytes_per_second" not in figures
        assert 'rampmeter_http_requests_total{route="/v1/pools/{pool}",status="2xx"} ' in figures


def test_a_held_request_waits_through_the_standby(pair):
    """It is answered by the release of another job; when its client leaves, it gives up its place at the leader."""
    _, leader, standby = pair
    with standby.client() as client:
        writer, waiter = writer_and_waiter(client)
        request = waiter.slot()
        body = encode(request)
        head = f"POST {waiter.url(request)} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(standby.url.removeprefix("http://").split(":")) as connection:
            connection.sendall(head.encode() + body)
            wait_for(lambda: held_at(leader) == 1, what="the request to be held")
        wait_for(lambda: held_at(leader) == 0, what="the waiter to go", limit_s=10.0)  # the hold is 25 s
        held = Held(standby, waiter, waiter.slot())
        wait_for(lambda: held_at(leader) == 1, what="the request to be held")
        writer.send(client, writer.release())
        held.join(10)
        assert held.response.json()["answer"] == "grant"


def test_a_forwarded_request_is_not_forwarded_again(lasting_pair):
    """Two that take each other for the leader do not send a request round and round."""
    _, _, standby = lasting_pair
    with standby.client(headers={"Rampmeter-Forwarded": "1"}) as client:
        refused = client.get("/v1/pools/default")
    assert (refused.status_code, refused.json()["reason"]) == (503, "no_leader")
    assert refused.headers["retry-after"] == "1"


def test_a_leader_that_is_told_to_stop_hands_over(pair):
    """SIGTERM: whoever waits is told 503, the exit code is 0, and the standby leads without waiting for a lease."""
    deployment, leader, standby = pair
    with standby.client() as client:
        writer, waiter = writer_and_waiter(client)
        held = Held(leader, waiter, waiter.slot())
        wait_for(lambda: held_at(leader) == 1, what="the request to be held")
        stopped_s = time.monotonic()
        leader.process.send_signal(signal.SIGTERM)
        wait_for(lambda: metric(standby.url, "rampmeter_leader") == 1.0, what="the standby to lead")
        assert time.monotonic() - stopped_s < 2.5
        assert leader.process.wait(10) == 0
        held.join(10)
        assert (held.response.status_code, held.response.json()["reason"]) == (503, "draining")
        assert int(held.response.headers["retry-after"]) >= 1
        assert not client.get("/v1/pools/default").json()["in_grace"]
        fence = writer.fence
        renewed = writer.send(client, writer.renew(held=800_000_000)).json()
        assert (renewed["answer"], writer.fence) == ("grant", fence)
    for member in deployment.members:
        assert "Traceback" not in member.log()


def test_a_standby_that_is_told_to_stop_answers_what_it_had_forwarded(pair):
    """SIGTERM of a standby: 503 to whoever waits through it, exit code 0, and the leader goes on."""
    _, leader, standby = pair
    with leader.client() as client:
        _, waiter = writer_and_waiter(client)
        held = Held(standby, waiter, waiter.slot())
        wait_for(lambda: held_at(leader) == 1, what="the request to be held")
        standby.process.send_signal(signal.SIGTERM)
        held.join(10)
        assert (held.response.status_code, held.response.json()["reason"]) == (503, "draining")
        assert standby.process.wait(10) == 0
        wait_for(lambda: held_at(leader) == 0, what="the waiter to go", limit_s=10.0)  # the hold is 25 s
        assert client.get("/readyz").status_code == 200


def test_requests_that_come_while_nobody_leads_wait_for_the_new_leader(pair):
    """kill -9 of the leader: a request to the standby right afterwards is answered, late but once."""
    _, leader, standby = pair
    with standby.client() as client:
        job = HttpJob()
        job.enter(client)
        leader.kill()
        answered = job.send(client, job.heartbeat())
        assert answered.status_code == 200
        assert metric(standby.url, "rampmeter_leader") == 1.0


def test_without_a_store_nobody_leads(tmp_path):
    """When Redis is gone for longer than a lease, every replica says 503 no_leader with a time to come back.

    When it is back and has lost all, nothing is said in a pool before its grace: whoever leads, also who led before and
    found it back before it had stepped down, learns of the loss with its next commit.
    """
    (tmp_path / "redis").mkdir()
    deployment = Replicas(tmp_path, f"unix://{tmp_path}/redis/redis.sock", count=2)
    members = deployment.members
    try:
        with redis_server(tmp_path / "redis"):
            deployment.start()
        for member in members:
            with member.client() as client:
                wait_for(
                    lambda c=client: c.get("/v1/pools/default").json().get("reason") == "no_leader",
                    what="no_leader",
                )
                refused = client.get("/v1/pools/default")
                assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
                wait_for(lambda c=client: c.get("/readyz").status_code == 503, what="its readiness to end")
                assert client.get("/livez").status_code == 200
        with redis_server(tmp_path / "redis"):
            deployment.wait_until_served()
            job = HttpJob()
            request = job.register()
            with members[0].client() as client:
                wait_for(lambda: job.send(client, request).status_code == 200, what="a request to be kept")
                assert client.get("/v1/pools/default").json()["in_grace"]
    finally:
        for member in deployment.running():
            member.kill()
