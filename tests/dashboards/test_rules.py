"""The Prometheus configuration, rules and alerts, judged by promtool."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.debian("prometheus", binary="promtool")


def promtool(top: Path, *arguments: str) -> None:
    done = subprocess.run(
        ["promtool", *arguments],
        cwd=top / "dashboards/prometheus",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_configuration_is_valid(top: Path) -> None:
    """Prometheus accepts the shipped configuration and finds its rules."""
    promtool(top, "check", "config", "prometheus.yml")


def test_rules_pass_the_linter(top: Path) -> None:
    """promtool finds no error and no duplicate in the rules."""
    promtool(top, "check", "rules", "--lint=all", "--lint-fatal", "rules.yml")


def test_rules_pass_their_unit_tests(top: Path) -> None:
    """Every recorded value and alert is what rules_test.yml expects."""
    promtool(top, "test", "rules", "rules_test.yml")


def test_every_alert_is_shown_to_fire_and_to_stay_quiet(top: Path, rules: list[dict[str, Any]]) -> None:
    """The unit tests have a firing case and a case in which it never fires, for each alert."""
    cases = yaml.safe_load((top / "dashboards/prometheus/rules_test.yml").read_text())["tests"]
    fires, quiet = set(), set()
    for case in cases:
        checks = case.get("alert_rule_test", ())
        firing = {check["alertname"] for check in checks if check["exp_alerts"]}
        fires |= firing
        quiet |= {check["alertname"] for check in checks} - firing
    alerts = {rule["alert"] for rule in rules if "alert" in rule}
    assert (fires, quiet) == (alerts, alerts)


def test_every_alert_says_what_to_do(top: Path, rules: list[dict[str, Any]]) -> None:
    """Each alert has severity, summary, description and a runbook that exists and begins with the kill switch."""
    for rule in rules:
        if "alert" not in rule:
            continue
        assert rule["labels"]["severity"] in {"warning", "critical"}
        notes = rule["annotations"]
        assert notes["summary"]
        assert notes["description"]
        assert notes["runbook_url"] == f"docs/runbooks/{rule['alert']}.md"
        page = (top / notes["runbook_url"]).read_text()
        assert page.startswith(f"# {rule['alert']}\n")
        assert "RAMPMETER=off" in page.split("## What to do")[1].split("\n2. ")[0]


def test_every_runbook_belongs_to_an_alert(top: Path, rules: list[dict[str, Any]]) -> None:
    """No runbook is left behind when an alert is renamed."""
    pages = {page.stem for page in (top / "docs/runbooks").glob("*.md")}
    assert pages == {rule["alert"] for rule in rules if "alert" in rule}
