"""Whatever rules and board ask for, the coordinator has: names and labels are compared with a live /metrics."""

import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

Selectors = Callable[[str], list[Any]]

SYNTHETIC = {
    "up": {"job", "instance"},
    "ALERTS": {"alertname", "alertstate", "pool", "severity"},
}
"""What Prometheus itself adds, and the labels that rules and board may use of it."""


@pytest.fixture(scope="module")
def known(metrics_text: str, rules: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Series that exist, with the labels that they have."""
    found = {name: set(labels) for name, labels in SYNTHETIC.items()}
    for family in text_string_to_metric_families(metrics_text):
        for sample in family.samples:
            found.setdefault(sample.name, {"job", "instance"}).update(sample.labels)
    return found | {rule["record"]: {"pool"} for rule in rules if "record" in rule}


@pytest.fixture(scope="module")
def asked(
    rules: list[dict[str, Any]], board_expressions: list[str], selectors: Selectors
) -> dict[str, set[str]]:
    """Series that rules and board ask for, with the labels that they select by."""
    found: dict[str, set[str]] = {}
    for expression in [*(rule["expr"] for rule in rules), *board_expressions]:
        for selector in selectors(expression):
            labels = {matcher.name for matcher in selector.matchers.matchers}
            found.setdefault(selector.name, set()).update(labels)
    return found


def test_every_series_that_is_asked_for_exists(
    asked: dict[str, set[str]], known: dict[str, set[str]]
) -> None:
    """No rule or panel names a metric that the coordinator does not have."""
    assert set(asked) - set(known) == set()


def test_every_label_that_is_selected_by_exists(
    asked: dict[str, set[str]], known: dict[str, set[str]]
) -> None:
    """No rule or panel selects by a label that the series does not have."""
    assert {name: labels - known[name] for name, labels in asked.items() if labels - known[name]} == {}


def test_the_pool_variable_lists_an_existing_label(board: dict[str, Any], known: dict[str, set[str]]) -> None:
    """The list of pools in the board comes from a series that has the label pool."""
    (variable,) = [entry for entry in board["templating"]["list"] if entry["name"] == "pool"]
    name, label = variable["query"]["query"].removeprefix("label_values(").removesuffix(")").split(", ")
    assert label in known[name]


@pytest.mark.debian("prometheus", binary="promtool")
def test_live_metrics_pass_the_linter(metrics_text: str) -> None:
    """promtool finds nothing to say about the names, types and help texts of /metrics."""
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=metrics_text,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
