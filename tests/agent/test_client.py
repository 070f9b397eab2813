"""The client against a hand-written server: every failure comes out as one of our errors."""

import asyncio
import json

import httpx
import pytest

from rampmeter.client import Client
from rampmeter.core.decode import encode
from rampmeter.core.errors import CoordinatorUnavailable, ProtocolError, RequestRefused, StaleAttempt
from rampmeter.core.messages import Heartbeat
from support.answers import noted

BEAT = Heartbeat(job_uid="a" * 32, attempt=1, seq=3, ack=2, step=7)


def exchange(handler, request=BEAT):
    """One exchange with a server that is a function."""

    async def run():
        async with Client("http://host:1/sub/", "my pool", transport=httpx.MockTransport(handler)) as client:
            return await client.exchange(request)

    return asyncio.run(run())


def answering(status=200, body=b"", **headers):
    return lambda _: httpx.Response(status, content=body, headers=headers)


def problem(status, **fields):
    return answering(status, json.dumps(fields).encode())


def test_request_goes_to_its_path_with_protocol_and_body():
    """Pool and prefix in the URL, the version in a header, absent fields absent."""
    seen = []

    def handler(request):
        seen.append(request)
        return httpx.Response(200, content=encode(noted(3)))

    assert exchange(handler) == noted(3)
    assert seen[0].url.raw_path == b"/sub/v1/pools/my%20pool/jobs/heartbeat"
    assert seen[0].headers["Rampmeter-Protocol"] == "1"
    assert json.loads(seen[0].content) == {
        "job_uid": "a" * 32,
        "attempt": 1,
        "seq": 3,
        "ack": 2,
        "step": 7,
        "num_skipped": 0,
        "num_failed": 0,
        "last_failure": "none",
        "num_ungoverned": 0,
        "rolled_back": False,
    }


@pytest.mark.parametrize(
    "error", [httpx.ConnectError("no"), httpx.ReadTimeout("late"), httpx.RemoteProtocolError("")]
)
def test_no_answer_is_unavailable(error):
    """Not reachable, too late, cut off: all the same to the caller."""

    def handler(_):
        raise error

    with pytest.raises(CoordinatorUnavailable, match="Heartbeat"):
        exchange(handler)


def test_server_error_is_unavailable_and_says_when_to_come_back():
    """503 with Retry-After."""
    with pytest.raises(CoordinatorUnavailable) as caught:
        exchange(answering(503, b"{}", **{"Retry-After": "7"}))
    assert caught.value.retry_after_s == 7.0


@pytest.mark.parametrize("text", ["-1", "NaN", "soon", "1e999", ""])
def test_nonsense_in_retry_after_is_ignored(text):
    """Only a plain number of seconds counts."""
    with pytest.raises(CoordinatorUnavailable) as caught:
        exchange(answering(503, b"{}", **{"Retry-After": text}))
    assert caught.value.retry_after_s is None


def test_refusal_carries_reason_and_field():
    """4xx problem JSON."""
    with pytest.raises(RequestRefused, match="422 bad") as caught:
        exchange(problem(422, reason="bad_request", detail="bad", field="step"))
    assert (caught.value.reason, caught.value.field, caught.value.status) == ("bad_request", "step", 422)


def test_stale_attempt_names_the_stored_one():
    """409 stale_attempt."""
    with pytest.raises(StaleAttempt) as caught:
        exchange(problem(409, reason="stale_attempt", detail="newer", stored_attempt=4))
    assert caught.value.stored_attempt == 4


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"reason": 5, "detail": null, "stored_attempt": "x"}'])
def test_a_refusal_that_is_no_problem_json_is_still_a_refusal(body):
    """A proxy in between answers in its own way."""
    with pytest.raises(RequestRefused):
        exchange(answering(404, body))


@pytest.mark.parametrize(
    "body", [b"", b"ok", b"[]", b'{"answer":"noted"}', encode(noted(4)), b'{"answer":"yes"}', b"x" * 70_000]
)
def test_an_answer_that_is_not_ours_is_a_protocol_error(body):
    """Including the answer to another request."""
    with pytest.raises(ProtocolError):
        exchange(answering(200, body))


def test_redirects_are_not_followed():
    """A request with a lease in it goes where it was told, or nowhere."""
    with pytest.raises(RequestRefused):
        exchange(answering(307, b"", Location="http://elsewhere:1/"))
