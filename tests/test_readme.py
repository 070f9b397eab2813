"""README's training loop runs as it stands there, and its commands exist."""

import inspect
import re
from pathlib import Path

import pytest

import rampmeter
from rampmeter_coordinator.settings import read_settings
from support.training import Run

README = Path(__file__).parent.parent.joinpath("README.md").read_text()


def code_block(language):
    return re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)[1]


def test_the_loop_of_the_readme_runs(tmp_path):
    """Only the root is another one, and nobody listens at URL."""
    run = Run()
    code = code_block("python").replace("/lustre/run7", str(tmp_path))
    names = {
        "rampmeter": rampmeter,
        "sys": __import__("sys"),
        "URL": "http://127.0.0.1:9",
        "state": run.state,
        "total": 5,
        "train_one": lambda _: run.train_one(),
    }
    with pytest.raises(SystemExit) as ended:
        exec(code, names)
    assert (ended.value.code, names["step"]) == (0, 5)


def test_every_argument_that_the_readme_names_is_taken():
    """Each `word=` for ML engineers is one of Checkpointer or of its restore; those that need a word have one."""
    embed = README.partition("## Embed")[2].partition("## ")[0]
    named = set(re.findall(r"\b([a-z_]+)=", embed.replace("RAMPMETER=", "")))
    methods = (rampmeter.Checkpointer, rampmeter.Checkpointer.restore)
    taken = {name for method in methods for name in inspect.signature(method).parameters}
    assert named - taken == set()
    assert {"fresh", "mode", "on_event"} <= named


@pytest.mark.parametrize("target", sorted(set(re.findall(r"make (\w+)", README))))
def test_every_make_target_of_the_readme_exists(target):
    """What the README tells people to type is there."""
    makefile = Path(__file__).parent.parent.joinpath("Makefile").read_text()
    assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_every_file_that_the_readme_links_to_exists():
    """Links are relative and not broken."""
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert [link for link in links if not Path(__file__).parent.parent.joinpath(link).exists()] == []


def test_the_pools_of_the_readme_are_valid(tmp_path):
    """The TOML example is read as it stands there."""
    file = tmp_path / "pools.toml"
    file.write_text(code_block("toml"))
    settings = read_settings({"config": str(file)}, {})
    capacities = {pool.name: pool.capacity_bytes_per_s for pool in settings.pools}
    assert capacities == {"lustre": 100 * 10**9, "nfs": 4 * 10**9}
