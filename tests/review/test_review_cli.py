"""`rampmeter review` as a command: its texts, its JSON, its exit codes."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from rampmeter.review.cli import ReviewCommand
from support.plans import DOCUMENTED, FLAWED

GOLDEN = Path(__file__).parent / "golden"

EIGHT = [
    ("commit_order", "critical"),
    ("state", "critical"),
    ("data_position", "critical"),
    ("validation", "high"),
    ("stall", "high"),
    ("layout", "high"),
    ("keeps_everything", "medium"),
    ("monitoring", "medium"),
]


def run(*arguments):
    """The exit code of the command with these arguments."""
    command = ReviewCommand()
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args([str(argument) for argument in arguments]))


@pytest.mark.parametrize(("plan", "golden"), [(FLAWED, "flawed.txt"), (DOCUMENTED, "good.txt")])
def test_the_text_is_the_golden_one(capsys, plan, golden):
    """What people read is under review as well. `rampmeter review PLAN > GOLDEN` writes it anew."""
    assert run(plan) == 0
    text = capsys.readouterr().out
    assert text == (GOLDEN / golden).read_text()
    assert max(map(len, text.splitlines())) <= 80


def test_what_is_open_is_said_in_the_first_lines(capsys, tmp_path):
    """No flaw was found in a plan that says nothing, and that is no praise."""
    plan = tmp_path / "plan.toml"
    plan.write_text(
        "[run]\ngpus = 1\nlength = '1d'\n[schedule]\nevery = '1h'\n[size]\ntotal = '1GB'\n", encoding="utf-8"
    )
    run(plan)
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == "The plan: 1 GPU for 24 h, 24 GPU-hours"
    assert second.startswith("No flaw found; 16 questions are open.")


def test_large_losses_are_said_to_be_overstated(capsys, tmp_path):
    """As by `rampmeter plan`; beyond 100 % there is no figure at all."""
    plan = tmp_path / "plan.toml"
    for restart, says in (("10m", "restarts counted."), ("2h", "overstated"), ("30h", "next to nothing")):
        text = FLAWED.read_text().replace("mtbf_measured = false", f'restart = "{restart}"')
        plan.write_text(text)
        run(plan)
        head = " ".join(capsys.readouterr().out.split("\n\n")[0].split())
        assert says in head
        assert ("overstated" in head) == (restart == "2h")


def test_a_wrong_severity_is_answered_with_the_right_ones(capsys):
    """In the words that can be typed."""
    with pytest.raises(SystemExit):
        run(DOCUMENTED, "--fail-on", "severe")
    assert "'critical', 'high', 'medium', 'low', 'never'" in capsys.readouterr().err


def test_writes_that_do_not_fit_set_the_pace(capsys, tmp_path):
    """980 GB at 500 MB/s are 1,960 s: every 15 min is not what happens."""
    plan = tmp_path / "plan.toml"
    plan.write_text(DOCUMENTED.read_text().replace("50GB/s", "500MB/s"))
    run(plan, "--json")
    assert json.loads(capsys.readouterr().out)["planned"]["interval_s"] == 1_960.0


def test_the_draft_has_its_eight_flaws_worst_first(capsys):
    """What corrupts or silently changes the run comes before what wastes GPU-hours."""
    run(FLAWED, "--json")
    found = json.loads(capsys.readouterr().out)
    assert [(flaw["rule"], flaw["severity"]) for flaw in found["flaws"]] == EIGHT


def test_json_has_the_figures(capsys):
    """Shares are fractions, times are seconds, what cannot be told is null."""
    run(FLAWED, "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["checkpoint_bytes"] == 980 * 10**9
    assert found["planned"]["waste"]["total"] == pytest.approx(0.0689, rel=0.005)
    assert found["planned"]["lost_gpu_hours"] == pytest.approx(51_000, rel=0.005)
    stall = next(flaw for flaw in found["flaws"] if flaw["rule"] == "stall")
    assert stall["lost_gpu_hours"] == pytest.approx(43_000, rel=0.005)
    assert found["flaws"][0]["lost_gpu_hours"] is None


@pytest.mark.parametrize(
    ("fail_on", "code"), [("never", 0), ("critical", 0), ("high", 0), ("medium", 1), ("low", 1)]
)
def test_fail_on_decides_the_exit_code(tmp_path, capsys, fail_on, code):
    """A plan whose worst flaw is medium fails from medium on."""
    path = tmp_path / "plan.toml"
    path.write_text(DOCUMENTED.read_text().replace("tested = true", "tested = false"))
    assert run(path, "--fail-on", fail_on) == code
    assert "MEDIUM" in capsys.readouterr().out


def test_a_review_that_finds_something_is_no_failure(capsys):
    """Advice is not an error unless somebody asks for that."""
    assert run(FLAWED) == 0
    assert run(DOCUMENTED, "--fail-on", "low") == 0


def test_nothing_heavy_is_imported():
    """The base install is enough, and the command starts at once."""
    heavy = "{'torch', 'numpy', 'httpx', 'asyncio', 'matplotlib'}"
    code = f"import sys, rampmeter.review.cli; sys.exit(len({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
