"""The `rampmeter` command itself: finds, explains and runs sub-commands, and imports nothing else."""

import subprocess
import sys
from importlib.metadata import EntryPoint, version

import pytest

from rampmeter import cli
from rampmeter.core.errors import ConfigError


class Greet:
    """A sub-command for these tests."""

    name = "greet"
    help = "Say hello."

    def add_arguments(self, parser):
        parser.add_argument("--to", default="you")

    def run(self, args):
        if args.to == "redis":
            raise ModuleNotFoundError("No module named 'redis'", name="redis")
        if args.to == "nobody":
            raise ConfigError("option --to: must be somebody")
        print(f"hello {args.to}")
        return 3


class Bare:
    """A sub-command whose module needs something that is not there."""

    def __init__(self):
        raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")


@pytest.fixture
def commands(monkeypatch):
    """Entry points of this module instead of the installed ones."""
    found = [EntryPoint(name, f"{__name__}:{target}", cli.GROUP) for name, target in COMMANDS.items()]
    monkeypatch.setattr(cli, "entry_points", lambda group: found)
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or _this_module())


COMMANDS = {"greet": "Greet", "bare": "Bare", "gone": "Gone"}


def _this_module():
    module = type(sys)(__name__)
    module.__dict__.update(globals())
    return module


@pytest.mark.usefixtures("commands")
def test_a_command_gets_its_arguments_and_gives_the_exit_code(capsys):
    """Options reach the command, and its result is the exit code."""
    assert cli.main(["greet", "--to", "all"]) == 3
    assert capsys.readouterr().out == "hello all\n"


@pytest.mark.usefixtures("commands")
def test_a_wrong_setting_is_exit_code_2_and_one_line(capsys):
    """ConfigError is for people: its message on stderr, no traceback."""
    assert cli.main(["greet", "--to", "nobody"]) == 2
    assert capsys.readouterr().err == "rampmeter greet: option --to: must be somebody\n"


@pytest.mark.usefixtures("commands")
def test_a_missing_extra_is_named(capsys):
    """Who installed only the agent is told what to install."""
    assert cli.main(["bare"]) == 2
    assert "pip install 'rampmeter[coordinator]'" in capsys.readouterr().err


@pytest.mark.usefixtures("commands")
def test_an_extra_that_is_missed_later_is_named_too(capsys):
    """A store or a picture that only some use is imported when it is used."""
    assert cli.main(["greet", "--to", "redis"]) == 2
    assert capsys.readouterr().err.endswith("not installed: pip install 'rampmeter[redis]'\n")


@pytest.mark.usefixtures("commands")
def test_help_lists_commands_without_importing_them(capsys):
    """`gone` could not even be imported, and is listed all the same."""
    with pytest.raises(SystemExit) as caught:
        cli.main(["--help"])
    assert caught.value.code == 0
    assert "bare, gone, greet" in capsys.readouterr().out


@pytest.mark.usefixtures("commands")
@pytest.mark.parametrize("arguments", [["nothing"], ["--nothing"]])
def test_an_unknown_command_is_exit_code_2(capsys, arguments):
    """A misspelt command is refused with the known ones."""
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert "usage: rampmeter" in capsys.readouterr().err


def test_version(capsys):
    """--version is the version of the distribution."""
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"rampmeter {version('rampmeter')}\n"


def test_without_torch_the_checkpointer_says_what_to_install():
    """Whoever installed only the coordinator and trains with it reads more than "No module named torch"."""
    code = "import sys; sys.modules['torch'] = None; import rampmeter; rampmeter.Checkpointer"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ModuleNotFoundError" in ended.stderr
    assert "pip install 'rampmeter[torch]'" in ended.stderr


def test_the_command_line_is_light():
    """Neither torch nor the coordinator's packages are imported before a command needs them."""
    heavy = "{'torch', 'numpy', 'fastapi', 'pydantic', 'uvicorn', 'redis'}"
    code = f"import sys, rampmeter.cli; sys.exit(len({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
