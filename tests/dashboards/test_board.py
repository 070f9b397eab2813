"""The Grafana board as far as it can be judged without Grafana: its structure and its expressions."""

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml


def test_every_expression_parses(board_expressions: list[str], selectors: Callable[[str], list[Any]]) -> None:
    """Every panel asks something that is PromQL and selects at least one series."""
    assert all(selectors(expression) for expression in board_expressions)


def test_panels_have_unique_ids_and_titles(board: dict[str, Any]) -> None:
    """No panel hides behind another one's id or title."""
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)


def test_panels_do_not_overlap(board: dict[str, Any]) -> None:
    """Every panel has its own place in the 24 columns."""
    places = [panel["gridPos"] for panel in board["panels"]]
    assert all(place["x"] >= 0 and place["x"] + place["w"] <= 24 for place in places)
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        stacked = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or stacked, (one, other)


def test_panels_have_units_and_descriptions(board: dict[str, Any]) -> None:
    """Every panel says what its numbers are."""
    for panel in board["panels"]:
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["description"], panel["title"]


def test_every_query_goes_to_the_chosen_data_source(board: dict[str, Any]) -> None:
    """Nothing is bound to the data source of the machine that the board was made on."""
    users = [*board["panels"], *board["annotations"]["list"]]
    users += [target for panel in board["panels"] for target in panel["targets"]]
    users += [variable for variable in board["templating"]["list"] if variable["type"] == "query"]
    assert {user["datasource"]["uid"] for user in users} == {"${datasource}"}


def test_rates_follow_the_scrape_interval(board: dict[str, Any]) -> None:
    """Every range is $__rate_interval, which is long enough at every zoom."""
    for panel in board["panels"]:
        for target in panel["targets"]:
            assert target["expr"].count("[") == target["expr"].count("[$__rate_interval]"), panel["title"]


def test_every_pool_figure_follows_the_pool_variable(
    board: dict[str, Any], selectors: Callable[[str], list[Any]]
) -> None:
    """Choosing a pool chooses it in every panel but the one about HTTP."""
    for panel in board["panels"]:
        for target in panel["targets"]:
            for selector in selectors(target["expr"].replace("$__rate_interval", "1m")):
                pools = [m.value for m in selector.matchers.matchers if m.name == "pool"]
                assert pools == ["$pool"] or selector.name.startswith("rampmeter_http_"), panel["title"]


def test_the_board_shows_bandwidth_against_budget_and_capacity(
    board: dict[str, Any], selectors: Callable[[str], list[Any]]
) -> None:
    """One panel of the first screen has granted, achieved, budget and capacity together."""
    (panel,) = [panel for panel in board["panels"] if panel["title"] == "Checkpoint bandwidth"]
    names = {selector.name for target in panel["targets"] for selector in selectors(target["expr"])}
    wanted = ("granted", "achieved", "budget", "capacity")
    assert {f"rampmeter_{name}_bytes_per_second" for name in wanted} <= names
    assert panel["gridPos"]["y"] + panel["gridPos"]["h"] <= 16


def test_the_board_has_a_fixed_address_and_the_final_schema(board: dict[str, Any]) -> None:
    """Links to the board last, and Grafana has nothing to migrate."""
    assert (board["uid"], board["schemaVersion"]) == ("rampmeter-overview", 42)


def test_provisioning_finds_board_and_prometheus(top: Path, compose: dict[str, Any]) -> None:
    """Grafana's provisioning names the directory and the address that Compose gives it."""
    provisioning = top / "dashboards/provisioning"
    (provider,) = yaml.safe_load((provisioning / "dashboards/rampmeter.yml").read_text())["providers"]
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())["datasources"]
    mounts = {mount["target"]: mount["source"] for mount in compose["services"]["grafana"]["volumes"]}
    assert Path(mounts[provider["options"]["path"]]) == top / "dashboards/grafana"
    assert Path(mounts["/etc/grafana/provisioning"]) == provisioning
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
