"""`rampmeter probe` as a command: what it says, how it ends, and that nothing stays behind."""

import argparse
import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rampmeter.core.errors import ConfigError
from rampmeter.probing.cli import ProbeCommand
from rampmeter.probing.figures import Round
from rampmeter.probing.files import Files
from rampmeter.probing.telling import as_text
from rampmeter.progress import Bar
from support.probes import BROKEN, FORBIDDEN, NO_SPACE, QUOTA, FailingFiles
from support.waiting import wait_for

SLOW = Path(__file__).parents[1] / "support" / "slow_probe.py"
SMALL = ("--size", "8MiB", "--seconds", "2", "--writers", "1,2")


def run(*arguments, files=None):
    """The exit code of the command with these arguments."""
    command = ProbeCommand(files)
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args([str(argument) for argument in arguments]))


def test_a_probe_says_what_it_will_do_measures_and_leaves_nothing(tmp_path, capsys):
    """The intention on stderr, the result on stdout."""
    assert run(tmp_path, *SMALL) == 0
    told = capsys.readouterr()
    assert told.err == (
        f"rampmeter probe: writes at most 8.39 MB to {tmp_path} with 1 then 2 writers, for about 2 s, "
        "reads it back and removes it\n"
    )
    assert "is what this comes to, but see below" in told.out
    assert list(tmp_path.iterdir()) == []


def test_json_is_one_object(tmp_path, capsys):
    """Rates in bytes per second, one entry a round."""
    assert run(tmp_path, *SMALL, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [measured["num_writers"] for measured in found["rounds"]] == [1, 2]
    assert all(measured["num_bytes"] == 4 * 2**20 for measured in found["rounds"])
    assert found["sustained_bytes_per_s"] == max(
        measured["sustained_bytes_per_s"] for measured in found["rounds"]
    )
    assert found["capacity"].endswith("B/s")


@pytest.mark.parametrize(
    ("operation", "number", "after", "says"),
    [
        ("write", NO_SPACE, 2, "no space is left"),
        ("write", QUOTA, 0, "the quota is used up"),
        ("push_out", BROKEN, 0, "input/output error"),
        ("sync", QUOTA, 0, "the quota is used up"),
        ("create", NO_SPACE, 1, "no space is left"),
        ("close", BROKEN, 0, "input/output error"),
        ("read", BROKEN, 1, "input/output error"),
        ("make_directory", NO_SPACE, 0, "no space is left"),
    ],
)
def test_an_error_of_the_storage_is_named_and_leaves_nothing(
    tmp_path, capsys, operation, number, after, says
):
    """Exit code 1, one line, and the directory as it was."""
    files = FailingFiles(operation, number, after=after)
    assert run(tmp_path, "--size", "40MiB", "--writers", "2", files=files) == 1
    assert says in capsys.readouterr().err.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--size", "2"), "option --size: "),
        (("--size", "1MiB"), "option --size: must be at least 8MiB"),
        (("--size", "11TB"), "option --size: must be at most 10TB"),
        (("--seconds", "0"), "option --seconds: "),
        (("--seconds", "nan"), "option --seconds: "),
        (("--writers", "0"), "option --writers: must be numbers from 1 to 64"),
        (("--writers", "1,,4"), "option --writers: must be numbers"),
        (("--writers", "65"), "option --writers: must be numbers"),
        (("--writers", "1,2,3,4,5,6,7,8,9"), "option --writers: at most 8 numbers"),
    ],
)
def test_a_wrong_option_is_named(tmp_path, options, says):
    """ConfigError is exit code 2."""
    with pytest.raises(ConfigError, match=says):
        run(tmp_path, *options)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_written_to_is_a_wrong_call(tmp_path):
    """As one that is missing."""
    with pytest.raises(ConfigError, match="no permission to write there"):
        run(tmp_path, *SMALL, files=FailingFiles("make_directory", FORBIDDEN))
    with pytest.raises(ConfigError, match="no such directory"):
        run(tmp_path / "missing", *SMALL)


def test_a_probe_that_does_not_fit_writes_nothing(tmp_path):
    """10 TB are not free twice here."""
    with pytest.raises(ConfigError, match="free"):
        run(tmp_path, "--size", "10TB", files=Files())
    assert list(tmp_path.iterdir()) == []


def start_slow(directory):
    """A probe in a process of its own, once it writes."""
    process = subprocess.Popen([sys.executable, SLOW, directory], stderr=subprocess.PIPE, text=True)
    wait_for(lambda: list(directory.glob(".rampmeter-probe-*/data-1")), what="a probe that writes")
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_leaves_nothing(tmp_path, number):
    """Exit code 130, within a chunk."""
    process = start_slow(tmp_path)
    process.send_signal(number)
    assert "stopped; what it wrote is removed" in process.communicate(timeout=30)[1]
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_goes_away_meanwhile_is_called_gone(tmp_path):
    """Nobody is asked to remove what is not there; where it was moved, its new place has it."""
    directory = tmp_path / "scratch"
    directory.mkdir()
    process = start_slow(directory)
    directory.rename(tmp_path / "moved")
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=30)[1]
    assert "is gone: somebody removed or moved the directory" in said
    assert process.returncode == 1


def test_an_empty_name_is_not_the_working_directory(tmp_path, monkeypatch):
    """A variable of a script that is not set must not measure whatever directory it runs in."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="DIR is empty"):
        run("", *SMALL)
    assert list(tmp_path.iterdir()) == []


def test_the_next_probe_removes_what_a_killed_one_left(tmp_path, capsys):
    """SIGKILL leaves files; they are found by their names."""
    process = start_slow(tmp_path)
    process.kill()
    process.communicate(timeout=30)
    (left,) = tmp_path.iterdir()
    assert run(tmp_path, *SMALL) == 0
    assert f"removed what an earlier probe left: {left.name}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_what_another_host_left_is_told(tmp_path, capsys):
    """And left alone."""
    (tmp_path / ".rampmeter-probe-1-0123abcd-elsewhere.x").mkdir()
    assert run(tmp_path, *SMALL) == 0
    assert "left alone, remove it if no probe runs there: .rampmeter-probe-1-" in capsys.readouterr().err


def test_the_table_reads_well():
    """Two rounds, the recommendation, the reason to doubt it."""
    rounds = [
        Round(
            num_writers=number,
            num_bytes=number * 10**9,
            write_s=2.0,
            durable_s=2.5,
            sync_s=0.5,
            early_bytes_per_s=number * 5e8,
            late_bytes_per_s=number * 4.9e8,
            num_small_files=64,
            small_file_s=0.0004 if number == 1 else 0.012,
            read_bytes=number * 10**9,
            read_s=0.5,
        )
        for number in (1, 4)
    ]
    assert as_text(Path("/lustre/scratch"), rounds) == TABLE


TABLE = """\
Probe of /lustre/scratch

capacity = "1.6GB/s" would be a careful value: the sustained rate of 4 writers,
not the peak.
4 writers gave more than 1: try --writers 4,8,16.
This is what one host gets, now, beside whoever else writes. It is no figure of
the cluster: probe from several hosts at once to see what they get together.

writers  written at    2nd half  durable at  last sync  small file   read back
      1    500 MB/s    490 MB/s    400 MB/s     500 ms  below 1 ms      2 GB/s
      4      2 GB/s   1.96 GB/s    1.6 GB/s     500 ms       12 ms      8 GB/s

Rates are of all writers together: written, handed over to the file system; 2nd
half, of the time of writing; durable, with the last sync. A small file has 4
KiB and is synced.
Reading back may be served by a cache of the storage.
"""


def test_the_bar_goes_away():
    """It is drawn over itself, and at the end there is an empty line."""
    stream = io.StringIO()
    bar = Bar(stream)
    bar.show("1 writer: write", 0.5)
    bar.show("1 writer: write", 0.5)
    bar.end()
    drawn = stream.getvalue().split("\r")
    assert drawn[1] == f"  [{'#' * 12}{'.' * 12}] 1 writer: write"
    assert drawn[2].strip() == ""
    assert len(drawn) == 4


def test_nothing_heavy_is_imported():
    """The base install is enough."""
    heavy = "{'torch', 'numpy', 'httpx', 'asyncio', 'xxhash'}"
    code = f"import sys, rampmeter.probing.cli; sys.exit(len({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
