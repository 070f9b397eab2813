"""A root, and the command in this process."""

import argparse
import json

import pytest

from rampmeter.checkpoints.cli import CheckpointsCommand
from rampmeter.layout import Root


@pytest.fixture
def root(tmp_path) -> Root:
    return Root(tmp_path / "run7")


@pytest.fixture
def checkpoints(capsys):
    """Run a verb; exit code and what it printed, with `as_json` as an object."""

    def run(*words, as_json: bool = False):
        parser = argparse.ArgumentParser()
        command = CheckpointsCommand()
        command.add_arguments(parser)
        options = ["--json"] if as_json else []
        capsys.readouterr()
        code = command.run(parser.parse_args([str(word) for word in words] + options))
        printed = capsys.readouterr()
        return code, json.loads(printed.out) if as_json else printed.out + printed.err

    return run
