"""Messages on a real connection: keep-alive, pipelining, bodies in pieces and of every length, clients that hang up."""

import json
import re
import socket

import pytest

from rampmeter.core.decode import encode
from support.coordinator import coordinator
from support.examples import PATHS, REQUESTS
from support.http_job import HttpJob
from support.waiting import wait_for

pytestmark = pytest.mark.system

SLOTS = "/v1/pools/default/slots"
LIMIT = 64 * 1024


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A coordinator with one pool `default` of 1 GB/s."""
    with coordinator(tmp_path_factory.mktemp("wire"), "--fresh", "--capacity", "1GB/s") as process:
        yield process


class Connection:
    """A socket that speaks HTTP/1.1 and nothing by itself."""

    def __init__(self, served):
        host, port = served.url.removeprefix("http://").split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self._received = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, *requests):
        """All at once."""
        self.socket.sendall(b"".join(requests))

    def answer(self):
        """(status, headers, body) of the next answer that is not an interim one."""
        while b"\r\n\r\n" not in self._received:
            self._more()
        head, _, rest = self._received.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        if status == "HTTP/1.1 100 Continue":
            self._received = rest
            return self.answer()
        headers = dict(line.split(": ", 1) for line in lines)
        length = int(headers["content-length"])
        while len(rest) < length:
            self._more()
            rest = self._received.partition(b"\r\n\r\n")[2]
        self._received = rest[length:]
        return int(status.split()[1]), headers, rest[:length]

    def is_closed(self):
        """Whether the other side has closed, after every answer has been read."""
        try:
            return self._received == b"" and self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _more(self):
        received = self.socket.recv(1 << 16)
        assert received, f"closed after {self._received!r}"
        self._received += received


def post(path, body, *headers, length=None):
    """A request as bytes; `length` if the announced one is another."""
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body) if length is None else length}"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


def chunked(path, *chunks):
    """A request whose body comes in chunks."""
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    return head + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))


def word(job, request):
    """A request of a job as bytes."""
    return post(job.url(request), encode(request))


def counted(served, path, status):
    """How many requests of a route had an answer of that class."""
    with served.client() as client:
        text = client.get("/metrics").text
    route = re.escape(f"/v1/pools/{{pool}}/{path}")
    return float(re.search(rf'requests_total{{route="{route}",status="{status}"}} (\S+)', text)[1])


def held_now(served):
    """How many requests the coordinator holds."""
    with served.client() as client:
        return float(re.search(r"requests_held{[^}]*} (\S+)", client.get("/metrics").text)[1])


def writer_and_waiter(served):
    """A job that has the whole budget, and one that has registered."""
    writer, waiter = HttpJob(), HttpJob()
    with served.client() as client:
        writer.enter(client)
        waiter.enter(client)
        assert writer.send(client, writer.slot(num_bytes=10**13)).json()["bytes_per_s"] == 800_000_000
        assert writer.send(client, writer.renew(held=800_000_000)).json()["answer"] == "grant"
    return writer, waiter


def leave(served, *jobs):
    """The jobs say goodbye, so that the next test finds the pool free."""
    with served.client() as client:
        for job in jobs:
            job.send(client, job.finish())


def both_ways(request):
    """The same request on the short way and on the long one, which every request that expects 100 takes."""
    return request, request.replace(b"Host: x\r\n", b"Host: x\r\nExpect: 100-continue\r\n")


def heard(served, request):
    """The answer, without its date."""
    with Connection(served) as connection:
        connection.send(request)
        status, headers, body = connection.answer()
        del headers["date"]
        return status, headers, body


@pytest.mark.parametrize("cls", PATHS, ids=lambda cls: cls.__name__)
def test_the_short_way_and_the_long_way_refuse_alike(served, cls):
    """Status, headers and body of a refusal do not tell by which way the request came; every one is counted."""
    path, good = PATHS[cls], json.dumps(REQUESTS[cls]).encode()
    broken = good.replace(b'"seq": 2', b'"seq": 0')
    before = counted(served, path, "4xx")
    for target, body, status, tells in (
        ("default", b"{", 422, None),
        ("default", b"", 422, None),
        ("default", broken, 422, "seq"),
        ("nothing", good, 404, None),
    ):
        request = post(f"/v1/pools/{target}/{path}", body, "Content-Type: text/plain")
        short, long = (heard(served, way) for way in both_ways(request))
        assert short == long
        assert short[0] == status
        assert json.loads(short[2]).get("field") == tells
        assert short[1]["content-type"] == "application/problem+json"
        assert short[1]["rampmeter-protocol"] == "1"
    assert counted(served, path, "4xx") == before + 8


def test_a_good_message_is_answered_alike_whatever_it_calls_itself(served):
    """The content type is not looked at, a query neither, a pool may be written with escapes; 2xx is counted."""
    before = counted(served, "jobs/register", "2xx")
    job = HttpJob()
    body = encode(job.register())
    requests = (
        post("/v1/pools/default/jobs/register", body, "Content-Type: text/plain"),
        post("/v1/pools/default/jobs/register?x=1", body),
        post("/v1/pools/de%66ault/jobs/register", body, "Rampmeter-Protocol: 1"),
        chunked("/v1/pools/default/jobs/register", body[:7], body[7:]),
    )
    with Connection(served) as connection:
        answers = set()
        for request in requests:  # kept alive, one after the other
            connection.send(request)
            status, headers, answer = connection.answer()
            assert (status, headers["content-type"]) == (200, "application/json")
            assert headers["rampmeter-protocol"] == "1"
            assert "connection" not in headers
            answers.add(answer)
    assert len(answers) == 1  # the same request again: the same answer
    assert counted(served, "jobs/register", "2xx") == before + len(requests)
    leave(served, job)


@pytest.mark.parametrize(
    ("method", "target", "header", "status"),
    [
        ("GET", SLOTS, "X: y", 405),
        ("PUT", SLOTS, "X: y", 405),
        ("POST", f"{SLOTS}/", "X: y", 404),
        ("POST", f"/x{SLOTS}", "X: y", 404),
        ("POST", "/v1/pools//slots", "X: y", 404),
        ("POST", "/v1/pools/a%2Fb/slots", "X: y", 404),
        ("POST", SLOTS, "Rampmeter-Protocol: 2", 400),
    ],
)
def test_what_is_no_plain_message_is_answered_by_the_application(served, method, target, header, status):
    """Other methods, paths and versions, on the connection of a message."""
    with Connection(served) as connection:
        connection.send(post(SLOTS, b"{"))
        assert connection.answer()[0] == 422
        connection.send(post(target, b"{", header).replace(b"POST", method.encode()))
        assert connection.answer()[0] == status
        connection.send(post(SLOTS, b"{"))
        assert connection.answer()[0] == 422


@pytest.mark.parametrize(
    "request_",
    [
        post(SLOTS, b"x" * (LIMIT + 1)),
        post(SLOTS, b"x" * (LIMIT + 1), length=10**9),
        chunked(SLOTS, *[b"x" * 1000] * 70),
    ],
    ids=["announced", "announced as more", "chunked"],
)
def test_a_body_that_is_too_large_ends_the_connection(served, request_):
    """413 as soon as the limit is passed, whatever was announced, and no byte of the rest is read."""
    with Connection(served) as connection:
        connection.send(request_)
        status, headers, body = connection.answer()
        assert (status, json.loads(body)["reason"], headers["connection"]) == (413, "too_large", "close")
        assert connection.is_closed()


def test_a_body_is_measured_and_not_believed(served):
    """Exactly the limit is read; no length means no body; a shorter length leaves a rest that is no request."""
    with Connection(served) as connection:
        connection.send(post(SLOTS, b"x" * LIMIT))
        assert connection.answer()[0] == 422
        connection.send(f"POST {SLOTS} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert connection.answer()[0] == 422
        connection.send(post(SLOTS, b"[]garbage that goes on", length=2))
        assert connection.answer()[0] == 400
        assert connection.is_closed()


def test_a_body_in_pieces_is_put_together(served):
    """Every byte by itself, with the head cut as well."""
    job = HttpJob()
    request = word(job, job.register())
    with Connection(served) as connection:
        connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(request)):
            connection.send(request[at : at + 1])
        assert connection.answer()[0] == 200
    leave(served, job)


def test_pipelined_requests_are_answered_in_their_order(served):
    """Good and bad messages, reads, and one that is held: each answer at its place, on one connection."""
    writer, waiter = writer_and_waiter(served)
    read = b"GET /v1/pools/default HTTP/1.1\r\nHost: x\r\n\r\n"
    bad, beat = post(SLOTS, b"{"), word(waiter, waiter.heartbeat())
    held = word(waiter, waiter.slot())
    with Connection(served) as connection:
        connection.send(bad, read, beat, bad, held, read, bad)
        assert [connection.answer()[0] for _ in range(4)] == [422, 200, 200, 422]
        wait_for(lambda: held_now(served) == 1, what="the request to be held")
        leave(served, writer)
        assert json.loads(connection.answer()[2])["answer"] == "grant"
        assert b'"num_leases":1' in connection.answer()[2]
        assert connection.answer()[0] == 422
    leave(served, waiter)


def test_thousands_of_bad_requests_at_once_are_answered_one_by_one(served):
    """As many answers as requests, and the log has nothing to say."""
    before = served.log()
    with Connection(served) as connection:
        for _ in range(5):
            connection.send(*[post(SLOTS, b"{")] * 1000)
            for _ in range(1000):
                assert connection.answer()[0] == 422
    assert served.log() == before


def test_connection_close_is_obeyed(served):
    """The answer says it too, and the connection ends."""
    for request in (
        post(SLOTS, b"{", "Connection: close"),
        post(SLOTS, b"{").replace(b"HTTP/1.1", b"HTTP/1.0"),
    ):
        with Connection(served) as connection:
            connection.send(request)
            status, headers, _ = connection.answer()
            assert (status, headers["connection"]) == (422, "close")
            assert connection.is_closed()


@pytest.mark.parametrize("rest", [b"", post(SLOTS, b"{")], ids=["alone", "with the next request behind it"])
def test_a_held_request_goes_with_its_client(served, rest):
    """Nobody is held any more, the place in the line is given up, and the request is counted as one that failed."""
    writer, waiter = writer_and_waiter(served)
    before = counted(served, "slots", "4xx")
    with Connection(served) as connection:
        connection.send(word(waiter, waiter.slot()), rest)
        wait_for(lambda: held_now(served) == 1, what="the request to be held")
    wait_for(lambda: held_now(served) == 0, what="the request to be let go", limit_s=4)
    assert counted(served, "slots", "4xx") == before + 1
    leave(served, writer)
    with served.client() as client:
        assert client.get("/v1/pools/default").json()["num_leases"] == 0
    leave(served, waiter)
    assert "Traceback" not in served.log()
