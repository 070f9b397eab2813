"""The sub-commands that `pyproject.toml` names: they are there, they are called so, and they explain themselves."""

import argparse
import importlib
import tomllib
from pathlib import Path

import pytest

from rampmeter import cli

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
COMMANDS = PROJECT["entry-points"][cli.GROUP]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_named_command_can_be_run(name):
    """Its class is where the entry point says, has its name, takes its options and has help with an example."""
    module, _, attribute = COMMANDS[name].partition(":")
    command = getattr(importlib.import_module(module), attribute)()
    assert command.name == name
    command.add_arguments(argparse.ArgumentParser())
    assert f"rampmeter {name}" in command.help


@pytest.mark.parametrize("arguments", [["--hel"], *([name, "--hel"] for name in COMMANDS)])
def test_options_are_not_abbreviated(arguments, capsys):
    """A script that said half of an option would mean another one after the next release."""
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert "usage: " in capsys.readouterr().err
