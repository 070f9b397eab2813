"""`rampmeter plan` in this process: as text, as figures, or refused."""

import json
import shlex

import pytest

from rampmeter import cli


@pytest.fixture
def say(capsys):
    """The text that a command line prints."""

    def said(options):
        assert cli.main(["plan", *shlex.split(options)]) == 0
        return capsys.readouterr().out

    return said


@pytest.fixture
def plan(say):
    """The figures that a command line gives."""
    return lambda options: json.loads(say(f"{options} --json"))


@pytest.fixture
def refused(capsys):
    """What is said of a wrong command line, which exits with 2 and prints nothing else."""

    def said(options):
        assert cli.main(["plan", *shlex.split(options)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        return err

    return said
