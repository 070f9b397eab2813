"""The HTTP surface: documents, reads, figures and the page, over the real application."""

import dataclasses
import json
import math
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rampmeter_coordinator.app import create_app
from rampmeter_coordinator.settings import read_settings
from support.examples import PATHS, REQUESTS, fields_of
from support.jobs import Job

OPENAPI = Path(__file__).parents[2] / "docs" / "openapi.json"


def samples(text):
    """Every sample of a metrics page: (name, labels) -> value."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def in_default(name, metrics):
    """The value of a metric of pool `default`."""
    return metrics[name, (("pool", "default"),)]


def document():
    """The OpenAPI document as this code has it."""
    return create_app(read_settings({"store": "memory", "capacity": "1GB/s"}, {})).openapi()


def test_the_committed_openapi_document_is_the_one_that_is_served():
    """docs/openapi.json changes only together with the code: python tests/support/write_openapi.py."""
    assert json.loads(OPENAPI.read_text()) == json.loads(json.dumps(document()))


def test_openapi_says_what_the_fields_say():
    """Bounds, required fields and absent ones of every request are in its schema; nothing may be null."""
    schemas = document()["components"]["schemas"]
    for cls in REQUESTS:
        schema = schemas[cls.__name__]
        for field in fields_of(cls):
            if "." in field.path:
                continue
            assert (field.path in schema["required"]) == field.required
            shape = schema["properties"][field.path]
            assert "null" not in json.dumps(shape)
            if field.is_numeric:
                marker = field.hint.__metadata__[0]
                assert (shape["minimum"], shape["maximum"]) == (marker.ge, marker.le)
            elif "pattern" in shape:
                assert shape["maxLength"] == field.hint.__metadata__[0].max_chars


def test_openapi_names_every_request_and_the_problems():
    """Each path has its request class, an answer, and problems as problem JSON; FastAPI's own error shape is gone."""
    found = document()
    for cls, path in PATHS.items():
        route = found["paths"][f"/v1/pools/{{pool}}/{path}"]["post"]
        shape = route["requestBody"]["content"]["application/json"]["schema"]
        assert shape["$ref"] == f"#/components/schemas/{cls.__name__}"
        assert set(route["responses"]) == {"200", "400", "404", "409", "413", "422", "503"}
        assert "application/problem+json" in route["responses"]["422"]["content"]
    assert "HTTPValidationError" not in json.dumps(found)
    assert set(found["components"]["schemas"]["Problem"]["required"]) == {
        "type",
        "title",
        "status",
        "detail",
        "reason",
    }


def test_jobs_come_in_pages(in_app):
    """Every job once, in order, and the last page says that it is the last."""

    async def scenario(client, app):
        jobs = [Job() for _ in range(7)]
        for job in jobs:
            await job.tell(app.state.replica.engine, job.register(), "default")
        seen, after = [], ""
        while after is not None:
            page = (await client.get("/v1/pools/default/jobs", params={"limit": 3, "after": after})).json()
            assert page["num_jobs"] == 7
            seen += [job["job_uid"] for job in page["jobs"]]
            after = page.get("next_after")
        assert seen == sorted(job.uid for job in jobs)

    in_app(scenario)


def test_reads_show_pool_leases_and_timeline(in_app):
    """A granted lease is in every view of the pool."""

    async def scenario(client, app):
        job = Job()
        for request in (job.register, job.heartbeat, job.slot):
            await job.tell(app.state.replica.engine, request(), "default")
        (pool,) = (await client.get("/v1/pools")).json()["pools"]
        assert pool == (await client.get("/v1/pools/default")).json()
        assert (pool["num_leases"], pool["granted_bytes_per_s"]) == (1, 800_000_000)
        (lease,) = (await client.get("/v1/pools/default/leases")).json()["leases"]
        assert (lease["job_uid"], lease["bytes_per_s"], lease["state"]) == (job.uid, 800_000_000, "active")
        timeline = (await client.get("/v1/pools/default/timeline")).json()
        assert timeline["rows"][-1]["job_uid"] == job.uid
        assert timeline["rows"][-1]["at_s"] <= timeline["now_s"]

    in_app(scenario)


def test_health(in_app):
    """Alive always, ready while commits go through, 503 problem while draining."""

    async def scenario(client, app):
        assert (await client.get("/livez")).json() == {"status": "alive"}
        assert (await client.get("/readyz")).json() == {"status": "ready"}
        await app.state.replica.engine.drain()
        answer = await client.get("/readyz")
        assert (answer.status_code, answer.json()["reason"]) == (503, "draining")
        assert (await client.get("/livez")).status_code == 200
        answer = await client.post("/v1/pools/default/jobs/register", json=REQUESTS[next(iter(REQUESTS))])
        assert (answer.status_code, answer.json()["reason"]) == (503, "draining")
        assert 1 <= int(answer.headers["retry-after"]) <= 5

    in_app(scenario)


def test_a_fault_of_ours_is_a_500_problem_that_tells_nothing(in_app, monkeypatch, caplog):
    """The client sees a problem, the log the traceback, and the version header is there all the same."""

    async def scenario(client, app):
        monkeypatch.setattr(app.state.replica.engine, "pool_view", lambda pool: 1 / 0)
        answer = await client.get("/v1/pools/default")
        assert (answer.status_code, answer.json()["reason"]) == (500, "internal")
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["rampmeter-protocol"] == "1"
        assert "ZeroDivision" not in answer.text
        assert "ZeroDivisionError" in caplog.text

    in_app(scenario)


def test_metrics_are_there_before_anything_happened(in_app):
    """Every label value exists from the start, so that rates of a first event are not lost."""

    async def scenario(client, app):
        metrics = samples((await client.get("/metrics")).text)
        for outcome in ("committed", "failed", "aborted", "expired", "revoked"):
            labels = (("outcome", outcome), ("pool", "default"))
            assert metrics["rampmeter_leases_ended_total", labels] == 0
        for reason in ("enospc", "eio", "closing", "unknown"):
            labels = (("pool", "default"), ("reason", reason))
            assert metrics["rampmeter_failed_saves_total", labels] == 0
        assert ("rampmeter_failed_saves_total", (("pool", "default"), ("reason", "none"))) not in metrics
        for path in PATHS.values():
            for status in ("2xx", "4xx", "5xx"):
                labels = (("route", f"/v1/pools/{{pool}}/{path}"), ("status", status))
                assert metrics["rampmeter_http_requests_total", labels] == 0
        assert in_default("rampmeter_capacity_bytes_per_second", metrics) == 1e9
        assert in_default("rampmeter_budget_bytes_per_second", metrics) == 8e8

    in_app(scenario)


def test_metrics_follow_what_happens(in_app):
    """Jobs, leases, rates, bytes, outcomes and requests are counted where they belong."""

    async def scenario(client, app):
        engine, job = app.state.replica.engine, Job()
        for request in (job.register, job.heartbeat, job.slot):
            await job.tell(engine, request(), "default")
        metrics = samples((await client.get("/metrics")).text)
        assert in_default("rampmeter_jobs", metrics) == 1
        assert in_default("rampmeter_leases_active", metrics) == 1
        assert in_default("rampmeter_granted_bytes_per_second", metrics) == 8e8
        await job.tell(engine, job.release(), "default")
        await client.get("/nothing")
        await client.post("/v1/pools/default/slots", content=b"{")
        metrics = samples((await client.get("/metrics")).text)
        assert in_default("rampmeter_leases_granted_total", metrics) == 1
        assert in_default("rampmeter_written_bytes_total", metrics) == 10**9
        assert metrics["rampmeter_leases_ended_total", (("outcome", "committed"), ("pool", "default"))] == 1
        assert metrics["rampmeter_http_requests_total", (("route", "unmatched"), ("status", "4xx"))] == 1
        slots = (("route", "/v1/pools/{pool}/slots"), ("status", "4xx"))
        assert metrics["rampmeter_http_requests_total", slots] == 1

    in_app(scenario)


def test_goodput_is_in_the_metrics(in_app):
    """Each cause of each share from the start; what is not known yet is no number."""

    async def scenario(client, app):
        metrics = samples((await client.get("/metrics")).text)
        for cause in ("stalled", "waiting", "rework", "restart", "discarded"):
            labels = (("cause", cause), ("pool", "default"))
            assert metrics["rampmeter_lost_gpu_seconds_total", labels] == 0
            assert math.isnan(metrics["rampmeter_waste_ratio", labels])
        for cause in ("write", "rework", "restart"):
            labels = (("cause", cause), ("pool", "default"))
            assert math.isnan(metrics["rampmeter_modelled_waste_ratio", labels])
        assert math.isnan(in_default("rampmeter_goodput_ratio", metrics))
        assert in_default("rampmeter_gpu_seconds_per_failure", metrics) == 50_000 * 3600
        assert in_default("rampmeter_interruptions_total", metrics) == 0
        await app.state.replica.engine.submit("default", Job().register(restart_s=120.0, mtbf_s=3600.0))
        pool = (await client.get("/v1/pools/default")).json()
        assert (pool["restart_s"], pool["mtbf_s"]) == (120.0, 3600.0)
        assert pool["account_gpu_s"]["observed"] == 0
        job = (await client.get("/v1/pools/default/jobs")).json()["jobs"][0]
        assert job["restart"]["restart_s"] == 120.0
        assert 0 < job["modelled"]["total"] < 1

    in_app(scenario)


def test_no_metric_has_a_job_label(in_app):
    """The number of series does not grow with the number of jobs."""

    async def scenario(client, app):
        before = samples((await client.get("/metrics")).text).keys()
        for _ in range(20):
            job = Job()
            await job.tell(app.state.replica.engine, job.register(), "default")
        assert samples((await client.get("/metrics")).text).keys() == before

    in_app(scenario)


def test_the_page_shows_pools_writers_and_jobs_without_any_script(in_app):
    """One request, nothing from elsewhere, a policy that forbids scripts, and a reload by itself."""

    async def scenario(client, app):
        job = Job()
        for request in (job.register, job.heartbeat, job.slot):
            await job.tell(app.state.replica.engine, request(), "default")
        page = await client.get("/")
        assert page.headers["content-type"].startswith("text/html")
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "run7" in page.text
        assert "1 job, " in page.text
        assert "800 MB/s" in page.text
        assert "http-equiv=refresh" in page.text
        assert not re.search(r"<script|https?://|src=", page.text)

    in_app(scenario)


def test_the_page_escapes_names(monkeypatch, in_app):
    """Names are text, whatever they hold."""

    async def scenario(client, app):
        job = Job()
        await job.tell(app.state.replica.engine, job.register(), "default")
        engine = app.state.replica.engine
        real = engine.job_views
        monkeypatch.setattr(
            engine, "job_views", lambda pool: [dataclasses.replace(view, name="<b>x") for view in real(pool)]
        )
        assert "&lt;b&gt;x" in (await client.get("/")).text

    in_app(scenario)


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
def test_no_page_loads_scripts_from_elsewhere(in_app, path):
    """FastAPI's own documentation pages would: they are off."""

    async def scenario(client, app):
        assert (await client.get(path)).status_code == 404

    in_app(scenario)
