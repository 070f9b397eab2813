"""docker-compose.yml as the real Compose reads it, and its settings on real programs."""

import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from redis import Redis

from rampmeter_coordinator.settings import VARIABLES
from support.redis_server import redis_server
from support.servers import PROGRAMS, serving, without_settings


def test_compose_accepts_the_file(top: Path) -> None:
    """The real Compose finds no unknown key and no missing variable."""
    done = subprocess.run(
        [PROGRAMS / "docker-compose", "--env-file", "/dev/null", "config", "-q"],
        cwd=top,
        env=without_settings(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_every_port_is_published_on_loopback(compose: dict[str, Any]) -> None:
    """Nothing is reachable from other machines unless the operator says so."""
    ports = [port for service in compose["services"].values() for port in service.get("ports", ())]
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}
    assert "ports" not in compose["services"]["redis"]


def test_what_must_last_is_in_named_volumes(compose: dict[str, Any]) -> None:
    """Redis and Prometheus keep their data in volumes that outlive the containers."""
    places = {
        name: {mount["target"] for mount in compose["services"][name]["volumes"] if mount["type"] == "volume"}
        for name in ("redis", "prometheus", "grafana")
    }
    assert places == {"redis": {"/data"}, "prometheus": {"/prometheus"}, "grafana": {"/var/lib/grafana"}}


def test_every_service_has_a_health_check(top: Path, compose: dict[str, Any]) -> None:
    """Compose sees the health of each service; the coordinator's check is in its image."""
    without = {name for name, service in compose["services"].items() if "healthcheck" not in service}
    assert without == {"coordinator"}
    assert "\nHEALTHCHECK " in (top / "coordinator/Dockerfile").read_text()


def test_no_image_floats(compose: dict[str, Any]) -> None:
    """Every image that is not built here has a version."""
    images = {s["image"] for s in compose["services"].values() if "build" not in s}
    assert all(":" in image and not image.endswith(":latest") for image in images), images


def test_variables_of_the_coordinator_exist(top: Path, compose: dict[str, Any]) -> None:
    """Compose and the image set no variable that the coordinator does not read."""
    stage = (top / "coordinator/Dockerfile").read_text().split("\nENV ")[1].split("\nUSER ")[0]
    in_image = {word.split("=")[0] for word in stage.split() if word.startswith("RAMPMETER_")}
    assert in_image
    assert in_image | set(compose["services"]["coordinator"]["environment"]) <= set(VARIABLES)


def test_prometheus_gets_the_shipped_configuration(top: Path, compose: dict[str, Any]) -> None:
    """The directory with configuration and rules is mounted where Prometheus looks."""
    service = compose["services"]["prometheus"]
    mounts = {mount["target"]: mount["source"] for mount in service["volumes"] if mount["type"] == "bind"}
    assert Path(mounts["/etc/prometheus"]) == top / "dashboards/prometheus"
    assert "--config.file=/etc/prometheus/prometheus.yml" in service["command"]


def test_prometheus_scrapes_where_the_coordinator_listens(top: Path, compose: dict[str, Any]) -> None:
    """The scrape target is the service and port of the Compose file."""
    (job,) = yaml.safe_load((top / "dashboards/prometheus/prometheus.yml").read_text())["scrape_configs"]
    command = compose["services"]["coordinator"]["command"]
    port = command[command.index("--port") + 1]
    assert job["static_configs"] == [{"targets": [f"coordinator:{port}"]}]


@pytest.mark.debian("redis-server")
def test_redis_keeps_every_key_and_appends(tmp_path: Path, compose: dict[str, Any]) -> None:
    """A real Redis with the options of the Compose file evicts nothing and writes the append-only file."""
    program, *options = compose["services"]["redis"]["command"]
    assert program == "redis-server"
    with redis_server(tmp_path, *options) as url, Redis.from_url(url) as client:
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert client.config_get("appendonly") == {"appendonly": "yes"}
        assert client.config_get("appendfsync") == {"appendfsync": "everysec"}


@pytest.mark.debian("redis-server")
def test_the_coordinator_serves_as_compose_starts_it(tmp_path: Path, compose: dict[str, Any]) -> None:
    """With the command of the Compose file, but for addresses, the coordinator becomes ready on such a Redis."""
    _, *redis_options = compose["services"]["redis"]["command"]
    verb, *options = compose["services"]["coordinator"]["command"]
    assert verb == "serve"
    with redis_server(tmp_path, *redis_options) as url:
        here = {"0.0.0.0": "127.0.0.1", "8000": "0", "redis://redis:6379/0": url}
        assert set(here) <= set(options)
        with serving(tmp_path, *(here.get(option, option) for option in options)) as coordinator:
            assert httpx.get(f"{coordinator.url}/readyz").status_code == 200
