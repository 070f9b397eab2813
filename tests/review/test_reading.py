"""Plans are read strictly: what is unknown, ill-typed or contradictory is refused by name."""

import pytest

from rampmeter.core.errors import ConfigError
from rampmeter.review.plan import CommitStep, Mode
from rampmeter.review.reading import SECTIONS, as_plan, read_plan
from support.plans import DOCUMENTED, FLAWED, tables


def test_the_documented_plan_has_every_key():
    """What the example file does not show nobody finds."""
    shown = tables()
    assert {name: set(keys) for name, keys in SECTIONS.items()} == {
        name: set(keys) for name, keys in shown.items()
    }


def test_a_plan_is_read():
    """Units, words and lists become values."""
    plan = read_plan(FLAWED)
    assert plan.run.length_s == 30 * 86400
    assert plan.size.parameters == 70 * 10**9
    assert plan.schedule.mode is Mode.SYNCHRONOUS
    assert plan.commit.order == (CommitStep.POINTER, CommitStep.SHARDS)
    assert plan.restore.num_spare_nodes is None


def test_a_mark_at_the_beginning_of_the_file_is_no_error(tmp_path):
    """Some editors write one."""
    path = tmp_path / "plan.toml"
    path.write_text(FLAWED.read_text(encoding="utf-8"), encoding="utf-8-sig")
    assert read_plan(path) == read_plan(FLAWED)


def test_only_three_figures_and_a_size_are_needed():
    """All else may be left out."""
    plan = as_plan(
        {"run": {"gpus": 8, "length": "1d"}, "schedule": {"every": "1h"}, "size": {"total": "1GB"}}
    )
    assert plan.size.planned_bytes == 10**9


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"run": {"gpus": None}}, "run.gpus: is missing"),
        ({"run": {"length": None}}, "run.length: is missing"),
        ({"schedule": {"every": None}}, "schedule.every: is missing"),
        ({"size": {"parameters": None, "total": None}}, "size: needs parameters"),
        ({"run": {"gpus": "8"}}, "run.gpus: must be an integer"),
        ({"run": {"gpus": 0}}, "run.gpus: must be an integer from 1"),
        ({"run": {"nodes": 2000}}, "run.nodes: there are more nodes than run.gpus"),
        ({"run": {"gpus": True}}, "run.gpus: must be an integer"),
        ({"run": {"gpu": 8}}, "unknown key in [run]: gpu; is gpus meant?"),
        ({"run": {"xyz": 8}}, "unknown key in [run]: xyz; known are name, gpus"),
        ({"run": {"name": ""}}, "run.name: must be text"),
        ({"run": {"length": 30}}, "run.length: must be in quotes, for example"),
        ({"run": {"length": "0s"}}, "run.length: must be above 0"),
        ({"run": {"length": "30 days"}}, 'run.length: "30 days" is no duration'),
        ({"run": {"price_per_gpu_hour": "2"}}, "run.price_per_gpu_hour: must be a number"),
        ({"run": {"price_per_gpu_hour": float("nan")}}, "run.price_per_gpu_hour: must be a number from 0"),
        ({"run": {"mtbf_measured": "yes"}}, "run.mtbf_measured: must be true or false"),
        ({"size": {"parameters": 70}}, "size.parameters: must be in quotes, for example"),
        ({"size": {"parameters": "70X"}}, 'size.parameters: "70X" is no count'),
        ({"size": {"parameters": "0B"}}, "size.parameters: must be above 0"),
        ({"size": {"total": "980Gb"}}, "is in bits"),
        ({"size": {"saved": "weights"}}, "size.saved: must be a list of"),
        ({"size": {"saved": [1]}}, "size.saved: must be a list of"),
        ({"size": {"saved": ["momentum"]}}, "size.saved: may only hold"),
        ({"size": {"saved": ["rng", "rng"]}}, "size.saved: names something twice"),
        ({"size": {"precision": "int8"}}, 'size.precision: must be "bf16_mixed" or'),
        ({"storage": {"write_bandwidth": "5GB"}}, 'storage.write_bandwidth: "5GB" is no rate'),
        ({"retention": {"keep": "all"}}, "retention.keep: "),
        ({"schedule": {"every": "31d"}}, "schedule.every: is longer than run.length"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(changes, says):
    """The message begins with section and key."""
    with pytest.raises(ConfigError) as caught:
        as_plan(tables(**changes))
    assert says in str(caught.value)


def test_an_unknown_section_is_refused():
    """A misspelt section must not become silence."""
    with pytest.raises(ConfigError, match=r"unknown section: retentions; is retention meant\?"):
        as_plan(tables() | {"retentions": {}})


def test_a_section_must_be_one():
    """`run = 3` is none."""
    with pytest.raises(ConfigError, match=r"run: must be a section, \[run\]"):
        as_plan(tables() | {"run": 3})


@pytest.mark.parametrize(("content", "says"), [(b"[run", "is no TOML file"), (b"\xff", "is no TOML file")])
def test_a_file_that_is_no_toml_is_named(tmp_path, content, says):
    """With the reason."""
    path = tmp_path / "plan.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=says):
        read_plan(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    """Missing files and directories alike."""
    with pytest.raises(ConfigError, match="No such file"):
        read_plan(tmp_path / "plan.toml")
    with pytest.raises(ConfigError, match="directory"):
        read_plan(tmp_path)


def test_the_file_is_named_with_the_key(tmp_path):
    """Whoever reviews many plans wants to know which."""
    path = tmp_path / "plan.toml"
    path.write_text(DOCUMENTED.read_text().replace("gpus = 1024", "gpus = 0"))
    with pytest.raises(ConfigError, match=r"plan\.toml: run\.gpus: "):
        read_plan(path)
