"""End to end on loopback: a real Prometheus with the shipped rules scrapes a real coordinator.

The shipped files are changed in three ways only: the target's address, intervals of 1 s, and every `for` is 1 s.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from support.servers import Coordinator, running, serving
from support.waiting import wait_for

pytestmark = [pytest.mark.system, pytest.mark.debian("prometheus")]

JOB = {"job_uid": "0" * 31 + "1", "attempt": 1}
GRANTED = "pool:rampmeter_granted_bytes_per_second:budget_ratio"


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running server."""

    url: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an instant query; empty while the server starts."""
        try:
            answer = httpx.get(f"{self.url}/api/v1/query", params={"query": expression})
        except httpx.TransportError:
            return []
        if answer.status_code == 503:
            return []
        series: list[dict[str, Any]] = answer.raise_for_status().json()["data"]["result"]
        return series

    def firing(self) -> set[str]:
        return {entry["metric"]["alertname"] for entry in self.query('ALERTS{alertstate="firing"}')}


def shortened(shipped: Path, to: Path, target: str) -> Path:
    """A copy of configuration and rules that reacts within seconds; gives the configuration's path."""
    config = yaml.safe_load((shipped / "prometheus.yml").read_text())
    rules = yaml.safe_load((shipped / "rules.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    (job,) = config["scrape_configs"]
    job |= {"scrape_timeout": "1s", "static_configs": [{"targets": [target]}]}
    for group in rules["groups"]:
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = "1s"
    (to / "prometheus.yml").write_text(yaml.safe_dump(config))
    (to / "rules.yml").write_text(yaml.safe_dump(rules))
    return to / "prometheus.yml"


@contextmanager
def watching(shipped: Path, where: Path) -> Iterator[tuple[Prometheus, Coordinator]]:
    """A coordinator, and a Prometheus that has scraped it once."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    log = where / "prometheus.log"
    with serving(where, "--fresh", "--capacity", "100GB/s") as coordinator:
        config = shortened(shipped, where, coordinator.address)
        command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={where / 'tsdb'}"]
        with running([*command, f"--web.listen-address={address}"], log) as process:
            server = Prometheus(f"http://{address}")
            wait_for(lambda: server.query("up == 1") or process.poll() is not None, what="the first scrape")
            assert process.poll() is None, log.read_text()
            yield server, coordinator


@pytest.fixture(scope="module")
def watched(top: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, Coordinator]]:
    """One pair for all tests that leave it running."""
    with watching(top / "dashboards/prometheus", tmp_path_factory.mktemp("watched")) as pair:
        yield pair


def write_a_checkpoint(coordinator: Coordinator) -> None:
    """What an agent says until it has a lease with a rate."""
    with httpx.Client(base_url=f"{coordinator.url}/v1/pools/default/") as agent:
        me = JOB | {"seq": 1, "ack": 0, "name": "llm", "claim": "0" * 32, "num_gpus": 8, "num_bytes": 10**12}
        assert agent.post("jobs/register", json=me).status_code == 200
        ask = JOB | {
            "seq": 2,
            "ack": 1,
            "kind": "write",
            "num_bytes": 10**12,
            "age_s": 7200.0,
            "ready_in_s": 0.0,
        }
        answer = agent.post("slots", json=ask, timeout=30).raise_for_status().json()
        assert answer["answer"] == "grant", answer
        if answer["state"] == "armed":
            ready = JOB | {"seq": 3, "ack": 2, "fence": answer["fence"], "lead_s": 0.0}
            answer = agent.post("leases/ready", json=ready, timeout=30).raise_for_status().json()
        assert answer["bytes_per_s"] > 0, answer


def test_aggregate_bandwidth_is_recorded_while_a_job_writes(watched: tuple[Prometheus, Coordinator]) -> None:
    """The share of the budget that is granted reaches Prometheus as one series per pool."""
    prometheus, coordinator = watched
    write_a_checkpoint(coordinator)
    most = f"max_over_time({GRANTED}[5m])"
    wait_for(lambda: prometheus.query(f"{most} > 0"), what="granted bandwidth in Prometheus")
    (series,) = prometheus.query(most)
    assert series["metric"] == {"pool": "default"}
    assert 0 < float(series["value"][1]) <= 1


def test_a_healthy_coordinator_fires_no_alert(watched: tuple[Prometheus, Coordinator]) -> None:
    """Once the figures are there, no alert of ours is on."""
    prometheus, _ = watched
    wait_for(lambda: prometheus.query(f"count_over_time({GRANTED}[5m]) > 4"), what="some evaluations")
    wait_for(lambda: not prometheus.firing(), what="no alert")


def test_every_panel_has_data(watched: tuple[Prometheus, Coordinator], board_expressions: list[str]) -> None:
    """Each expression of the board, but for the list of alerts, gives a series from a live coordinator."""
    prometheus, _ = watched

    def without_data() -> list[str]:
        asked = [text for text in board_expressions if not text.startswith("ALERTS")]
        return [text for text in asked if not prometheus.query(text)]

    wait_for(lambda: not without_data(), what="data for every panel")


def test_a_stopped_coordinator_fires_the_alert_for_it_alone(top: Path, tmp_path: Path) -> None:
    """RampmeterCoordinatorDown fires when the coordinator is gone, and no other alert speaks of the same thing."""
    with watching(top / "dashboards/prometheus", tmp_path) as (prometheus, coordinator):
        wait_for(lambda: prometheus.query(GRANTED) and not prometheus.firing(), what="quiet before the stop")
        coordinator.stop()
        wait_for(lambda: "RampmeterCoordinatorDown" in prometheus.firing(), what="RampmeterCoordinatorDown")
        assert prometheus.firing() == {"RampmeterCoordinatorDown"}
