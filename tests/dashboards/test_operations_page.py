"""docs/operations.md says what is there: every setting, every path, and a sizing example that comes out."""

import json
import re
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from rampmeter_coordinator import settings
from rampmeter_coordinator.model.pool import PoolConfig
from support.servers import PROGRAMS, Coordinator, serving
from support.waiting import wait_for

NUM_JOBS = 40


@pytest.fixture(scope="module")
def page(top: Path) -> str:
    return (top / "docs/operations.md").read_text()


@pytest.fixture(scope="module")
def rows(page: str) -> list[list[str]]:
    """The configuration table: file key, variable, option, default, meaning."""
    table = page.split("| file key |")[1].split("\n\n", maxsplit=1)[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in table]


def test_every_file_key_is_documented(rows: list[list[str]]) -> None:
    """The table has exactly the keys that the coordinator reads from its file."""
    keys = {f"server.{key}" for key in settings._SERVER} | {f"pools.NAME.{key}" for key in settings._POOL}
    assert {row[0] for row in rows if row[0]} == keys


def test_every_variable_is_documented_beside_its_key(rows: list[list[str]]) -> None:
    """The table has exactly the variables that the coordinator reads, each at the right key."""
    documented = {row[1]: row[0].rpartition(".")[2] or "config" for row in rows if row[1]}
    assert documented == dict(settings.VARIABLES)


def test_every_documented_option_exists(rows: list[list[str]]) -> None:
    """`rampmeter serve --help` knows each option of the table."""
    done = subprocess.run(
        [PROGRAMS / "rampmeter", "serve", "--help"], capture_output=True, text=True, check=True, timeout=60
    )
    options = {row[2] for row in rows if row[2]}
    assert options
    assert options <= set(re.findall(r"--[a-z-]+", done.stdout))


def test_documented_defaults_are_the_defaults(rows: list[list[str]], tmp_path: Path) -> None:
    """A file with the documented defaults of a pool says the same as a file without them."""
    pool = [row for row in rows if row[0].startswith("pools.NAME.") and row[0] != "pools.NAME.capacity"]
    lines = ["[pools.p]", 'capacity = "1GB/s"']
    for row in pool:
        value = row[3]
        if value != "none":
            lines.append(
                f"{row[0].rpartition('.')[2]} = {value if value[-1].isdigit() else json.dumps(value)}"
            )
    config = tmp_path / "rampmeter.toml"
    config.write_text("\n".join(lines))
    (read,) = settings.read_settings({"config": str(config)}, {}).pools
    assert read == PoolConfig(name="p", capacity_bytes_per_s=10**9)


def test_every_documented_path_answers(page: str, coordinator: Coordinator) -> None:
    """The paths of the health table exist."""
    paths = ["/livez", "/readyz", "/metrics", "/v1/pools"]
    assert all(f"`{path}`" in page for path in paths)
    paths += [f"/v1/pools/default/{name}" for name in ("jobs", "leases", "timeline")]
    assert {httpx.get(coordinator.url + path).status_code for path in paths} == {200}


def test_the_sizing_example_comes_out(page: str, tmp_path: Path) -> None:
    """40 jobs as in the example, told to a real coordinator, demand the average that the page says, within 10 %."""
    budget = float(re.findall(r"\*\*B = ([\d.]+) GB/s\*\*", page)[0]) * 1e9
    average = float(re.findall(r"= ([\d.]+) GB/s on average", page)[0]) * 1e9
    interval_s = float(re.findall(r"\*T\* = (\d+) s", page)[0])
    with serving(tmp_path, "--fresh", "--capacity", f"{budget:.0f}B/s") as coordinator:
        with httpx.Client(base_url=f"{coordinator.url}/v1/pools/default/jobs/") as agents:
            for number in range(NUM_JOBS):
                uid = f"{number:032x}"
                me = {"job_uid": uid, "attempt": 1, "seq": 1, "ack": 0, "name": "llm", "claim": uid}
                figures = {"num_bytes": 14 * 10**11, "stall_s": 4.0, "write_s": 300.0, "mtbf_s": 351_562.0}
                answer = agents.post("register", json=me | figures | {"num_gpus": 512}).raise_for_status()
            plan = answer.json()["plan"]
        pool = httpx.get(f"{coordinator.url}/v1/pools/default").json()
    assert plan["interval_s"] == pytest.approx(interval_s, rel=0.1)
    assert pool["demand_bytes_per_s"] == pytest.approx(average, rel=0.1)
    assert pool["demand_bytes_per_s"] == pytest.approx(pool["budget_bytes_per_s"], rel=0.1)


def test_stopping_takes_less_than_the_page_says(page: str, tmp_path: Path) -> None:
    """SIGTERM ends an idle coordinator with exit code 0 within the stated time."""
    limit_s = int(re.findall(r"exits 0 within (\d+) seconds", page)[0])
    with serving(tmp_path) as coordinator:
        start_s = time.monotonic()
        coordinator.process.terminate()
        wait_for(lambda: coordinator.process.poll() is not None, what="the end", limit_s=limit_s)
        assert coordinator.process.returncode == 0
        assert time.monotonic() - start_s < limit_s
