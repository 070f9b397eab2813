"""What is shipped for operations, as data, and a real coordinator to hold it against."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import promql_parser
import pytest
import yaml

from support.servers import PROGRAMS, Coordinator, serving, without_settings

TOP = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def top() -> Path:
    return TOP


@pytest.fixture(scope="session")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    """One for all tests that only read."""
    with serving(tmp_path_factory.mktemp("coordinator"), "--fresh", "--capacity", "100GB/s") as served:
        yield served


@pytest.fixture(scope="session")
def metrics_text(coordinator: Coordinator) -> str:
    return httpx.get(f"{coordinator.url}/metrics").raise_for_status().text


@pytest.fixture(scope="session")
def rules() -> list[dict[str, Any]]:
    """Every shipped rule, recording and alert."""
    content = yaml.safe_load((TOP / "dashboards/prometheus/rules.yml").read_text())
    return [rule for group in content["groups"] for rule in group["rules"]]


@pytest.fixture(scope="session")
def board() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((TOP / "dashboards/grafana/overview.json").read_text())
    return content


@pytest.fixture(scope="session")
def board_expressions(board: dict[str, Any]) -> list[str]:
    """What Prometheus gets to see of the panels and annotations: Grafana has put its variables in."""
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += [annotation["expr"] for annotation in board["annotations"]["list"]]
    return [text.replace("$__rate_interval", "1m").replace("$pool", ".+") for text in asked]


@pytest.fixture(scope="session")
def selectors() -> Callable[[str], list[Any]]:
    """Parse an expression and give its selectors, which have a name and matchers."""

    def parse(expression: str) -> list[Any]:
        found: list[Any] = []

        def visit(node: Any) -> None:
            if isinstance(node, promql_parser.VectorSelector):
                found.append(node)

        promql_parser.walk(promql_parser.parse(expression), visit)
        return found

    return parse


@pytest.fixture(scope="session")
def compose() -> dict[str, Any]:
    """docker-compose.yml as the real Compose reads it, without any variable set."""
    done = subprocess.run(
        [PROGRAMS / "docker-compose", "--env-file", "/dev/null", "config", "--format", "json"],
        cwd=TOP,
        env=without_settings(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    content: dict[str, Any] = json.loads(done.stdout)
    return content
