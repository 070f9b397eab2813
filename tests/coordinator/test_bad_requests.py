"""Every wrong value of every field of every request, over real HTTP: refused by name, without a trace."""

import json

import pytest

from rampmeter.core.messages import FailReason
from support.examples import PATHS, REQUESTS, UID, body_with, body_without, fields_of
from support.jobs import new_uid

FIELDS = [(cls, field) for cls in REQUESTS for field in fields_of(cls)]
IDS = [f"{cls.__name__}.{field.path}" for cls, field in FIELDS]


@pytest.fixture(scope="module")
def client(served):
    """A client of a coordinator that knows one job, which has finished: nothing moves by itself."""
    with served.client() as client:
        job = {"job_uid": UID, "attempt": 1}
        example = REQUESTS[next(iter(REQUESTS))]
        for path, message in (
            ("jobs/register", example | job | {"seq": 1, "ack": 0}),
            ("jobs/finish", job | {"seq": 2, "ack": 1, "reason": "finished"}),
        ):
            assert client.post(f"/v1/pools/default/{path}", json=message).status_code == 200
        yield client


def state(served, client):
    """What a refused request must not change."""
    return (
        client.get("/v1/pools/default").json(),
        client.get("/v1/pools/default/leases").json(),
        served.number(),
    )


def refused(client, path, body, field):
    """The problem of a refused body; checks what holds for all of them."""
    answer = client.post(f"/v1/pools/default/{path}", content=body)
    problem = answer.json()
    assert answer.status_code == problem["status"] == 422, body
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["reason"] == "bad_request"
    assert problem.get("field") == field
    return problem


@pytest.mark.parametrize(("cls", "field"), FIELDS, ids=IDS)
def test_a_wrong_value_is_refused_by_name_and_leaves_no_trace(served, client, cls, field):
    """422 problem JSON that names the field; pool and store are as before; the log has nothing to say."""
    before, log_before = state(served, client), served.log()
    bodies = [body_with(REQUESTS[cls], field.path, raw) for raw in field.bad_values.values()]
    if field.required:
        bodies.append(body_without(REQUESTS[cls], field.path))
    for body in bodies:
        refused(client, PATHS[cls], body, field.path)
    assert state(served, client) == before
    assert served.log() == log_before


@pytest.mark.parametrize("cls", PATHS, ids=lambda cls: cls.__name__)
def test_what_is_no_object_is_refused_without_a_field(served, client, cls):
    """Broken JSON and other JSON values are 422 without a field."""
    before = state(served, client)
    for body in (b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe\x00", b"[" * 60_000):
        refused(client, PATHS[cls], body, None)
    assert state(served, client) == before
    assert "Traceback" not in served.log()


@pytest.mark.parametrize("cls", PATHS, ids=lambda cls: cls.__name__)
def test_input_is_never_echoed(client, cls):
    """What a client sent, values and names of its own alike, does not come back in a problem."""
    marker = "sUs3bLG8"
    for field in fields_of(cls):
        body = body_with(REQUESTS[cls], field.path, json.dumps(marker + "\n<script>"))
        if field.hint is FailReason:  # a word that is not known counts as `unknown`
            assert marker not in client.post(f"/v1/pools/default/{PATHS[cls]}", content=body).text
            continue
        problem = refused(client, PATHS[cls], body, field.path)
        assert marker not in json.dumps(problem)
    for body in (f'{{"{marker}": 1}}', f"{{{marker}", f'"{marker}"'):
        answer = client.post(f"/v1/pools/default/{PATHS[cls]}", content=body)
        assert answer.status_code == 422
        assert marker not in answer.text
    assert marker not in client.post(f"/v1/pools/{marker}/{PATHS[cls]}", json=REQUESTS[cls]).text
    assert marker not in client.get(f"/{marker}").text


@pytest.mark.parametrize("how", ["with a length", "chunked"])
def test_a_body_that_is_too_large_is_413(client, how):
    """64 KiB and not a byte more, whether the length is announced or not."""
    body = json.dumps(REQUESTS[next(iter(REQUESTS))] | {"padding": ""}).encode()
    fitting = body.replace(b'"padding": ""', b'"padding": "%s"' % (b"x" * (64 * 1024 - len(body))))
    assert len(fitting) == 64 * 1024

    def send(content):
        chunks = (content[at : at + 1000] for at in range(0, len(content), 1000))
        return client.post(
            "/v1/pools/default/jobs/register", content=content if how == "with a length" else chunks
        )

    assert send(fitting).status_code != 413
    answer = send(fitting + b" ")
    assert (answer.status_code, answer.json()["reason"]) == (413, "too_large")
    assert answer.headers["content-type"] == "application/problem+json"
    assert send(b"x" * 3_000_000).status_code == 413
    assert client.get("/livez").status_code == 200


def test_routes_and_methods_that_are_not_there_are_problems(client):
    """404 and 405 are problem JSON too; 405 says what is allowed."""
    for method, path, status, reason in (
        ("GET", "/nothing", 404, "not_found"),
        ("POST", "/v1/pools/default/slots/", 404, "not_found"),
        ("GET", "/v1/pools/", 404, "not_found"),
        ("POST", "/v1/pools/nothing/slots", 422, "bad_request"),
        ("GET", "/v1/pools/nothing", 404, "unknown_pool"),
        ("GET", "/v1/pools/nothing/jobs", 404, "unknown_pool"),
        ("GET", "/v1/pools/default/slots", 405, "method_not_allowed"),
        ("DELETE", "/v1/pools/default", 405, "method_not_allowed"),
    ):
        answer = client.request(method, path)
        assert (answer.status_code, answer.json()["reason"]) == (status, reason)
        assert answer.headers["content-type"] == "application/problem+json"
        assert ("allow" in answer.headers) == (status == 405)


def test_unknown_pools_and_jobs_are_told_apart(client):
    """An unknown pool is a setting to fix, an unknown job has to register: different reasons."""
    for cls, path in PATHS.items():
        answer = client.post(f"/v1/pools/nothing/{path}", json=REQUESTS[cls])
        assert (answer.status_code, answer.json()["reason"]) == (404, "unknown_pool")
    heartbeat = {"job_uid": new_uid(), "attempt": 1, "seq": 1, "ack": 0, "step": 1}
    answer = client.post("/v1/pools/default/jobs/heartbeat", json=heartbeat)
    assert (answer.status_code, answer.json()["reason"]) == (404, "unknown_job")


@pytest.mark.parametrize("version", ["0", "2", "1.0", "x", ""])
def test_an_unsupported_protocol_version_is_refused(client, version):
    """400 with a reason, the supported version beside it, and no echo."""
    answer = client.get("/v1/pools", headers={"Rampmeter-Protocol": version})
    assert (answer.status_code, answer.json()["reason"]) == (400, "unsupported_protocol")
    assert answer.headers["rampmeter-protocol"] == "1"


def test_the_protocol_version_is_always_sent_back(client):
    """Every answer, good or bad, says which version it speaks; the request need not."""
    for path in ("/v1/pools", "/livez", "/nothing", "/v1/pools/nothing", "/metrics", "/"):
        for headers in ({}, {"Rampmeter-Protocol": "1"}):
            assert client.get(path, headers=headers).headers["rampmeter-protocol"] == "1"


@pytest.mark.parametrize(
    ("query", "field"),
    [("limit=0", "limit"), ("limit=1001", "limit"), ("limit=x9q", "limit"), ("after=" + "a" * 33, "after")],
)
def test_bad_query_parameters_are_problems(client, query, field):
    """A bad parameter is 422 naming it."""
    answer = client.get(f"/v1/pools/default/jobs?{query}")
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert "x9q" not in answer.text
