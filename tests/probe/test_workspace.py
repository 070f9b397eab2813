"""Where a probe may write, and whose leftovers it removes."""

import os
import subprocess
import sys

import pytest

from rampmeter.core.errors import ConfigError
from rampmeter.probing import workspace
from rampmeter.probing.errors import ProbeFailed
from rampmeter.probing.files import Files
from rampmeter.probing.workspace import (
    check_room,
    data_name,
    read_directory,
    small_name,
    sweep,
    work_directory,
)
from support.probes import FORBIDDEN, MIB, NO_SPACE, READ_ONLY, FailingFiles, SteadyFiles


@pytest.fixture
def dead_pid():
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def leftover(directory, pid, place=None, names=("data-0", "small-1-12")):
    """A work directory as a killed probe leaves it."""
    path = directory / f".rampmeter-probe-{pid}-0123abcd-{place or workspace._place()}"
    path.mkdir()
    for name in names:
        (path / name).write_bytes(b"x")
    return path


def room(files, *, max_bytes=1000, num_files=10, size_was_given=False):
    """The check for room in some directory."""
    check_room("/d", files, max_bytes=max_bytes, num_files=num_files, size_was_given=size_was_given)


def _write_and_break_off(directory):
    with work_directory(directory, Files()) as path:
        (path / data_name(3)).write_bytes(b"x")
        (path / small_name(3, 17)).write_bytes(b"x")
        raise KeyboardInterrupt


def test_a_work_directory_goes_away_with_all_that_is_in_it(tmp_path):
    """Also after an error."""
    with pytest.raises(KeyboardInterrupt):
        _write_and_break_off(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_removed_is_named(tmp_path):
    """Somebody has to remove it by hand."""
    with pytest.raises(ProbeFailed, match=r"\.rampmeter-probe-.* could not be removed .*please remove it"):
        with work_directory(tmp_path, FailingFiles("remove_directory", NO_SPACE)):
            pass


@pytest.mark.parametrize(
    ("number", "error", "says"),
    [
        (FORBIDDEN, ConfigError, "no permission"),
        (READ_ONLY, ConfigError, "mounted read-only"),
        (NO_SPACE, ProbeFailed, "no space"),
    ],
)
def test_a_directory_that_takes_none_is_refused(tmp_path, number, error, says):
    """A wrong directory is a wrong call; a full one is not."""
    with pytest.raises(error, match=says), work_directory(tmp_path, FailingFiles("make_directory", number)):
        pass


def test_what_a_killed_probe_left_is_removed(tmp_path, dead_pid):
    """Its process is gone, and it was one of this host."""
    path = leftover(tmp_path, dead_pid)
    assert sweep(tmp_path, Files()).removed == (path.name,)
    assert list(tmp_path.iterdir()) == []


def test_a_running_probe_is_left_alone(tmp_path):
    """Two people may probe the same directory."""
    path = leftover(tmp_path, os.getpid())
    found = sweep(tmp_path, Files())
    assert (found.removed, found.strange) == ((), ())
    assert (path / "data-0").exists()


def test_what_another_host_left_is_named_and_left_alone(tmp_path, dead_pid):
    """A process id means nothing here if it is of another host."""
    path = leftover(tmp_path, dead_pid, place="node7.pid__4026531836_")
    found = sweep(tmp_path, Files())
    assert (found.removed, found.strange) == ((), (path.name,))
    assert (path / "data-0").exists()


def test_other_files_are_never_removed(tmp_path, dead_pid):
    """Neither in a work directory nor beside it."""
    path = leftover(tmp_path, dead_pid, names=("data-0", "thesis.tex"))
    (tmp_path / "data-0").write_bytes(b"x")
    assert sweep(tmp_path, Files()).strange == (path.name,)
    assert [entry.name for entry in path.iterdir()] == ["thesis.tex"]
    assert (tmp_path / "data-0").exists()


def test_a_link_is_never_followed(tmp_path, dead_pid):
    """A name of ours that points elsewhere is not ours."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "data-0").write_bytes(b"x")
    directory = tmp_path / "probed"
    directory.mkdir()
    (directory / f".rampmeter-probe-{dead_pid}-0123abcd-{workspace._place()}").symlink_to(elsewhere)
    found = sweep(directory, Files())
    assert (found.removed, found.strange) == ((), ())
    assert (elsewhere / "data-0").exists()


def test_twice_of_what_is_written_must_be_free():
    """And the message says what would fit, in a form that can be typed."""
    room(SteadyFiles(free_bytes=20 * MIB, free_files=20), max_bytes=10 * MIB)
    with pytest.raises(ConfigError, match=r"free; .* wants 21 MB\. Give a --size of at most 9MiB"):
        room(SteadyFiles(free_bytes=20 * MIB - 1, free_files=20), max_bytes=10 * MIB)
    with pytest.raises(ConfigError, match=r"has 1 MB free; .* wants 21 MB$"):
        room(SteadyFiles(free_bytes=10**6, free_files=20), max_bytes=10 * MIB)


def test_files_must_be_free_too():
    """Twice of them; a file system that counts none does not say, and is not full."""
    with pytest.raises(ConfigError, match="room for 19 more files only"):
        room(SteadyFiles(free_bytes=2000, free_files=19))
    room(SteadyFiles(free_bytes=2000, free_files=None))


def test_where_the_free_space_is_unknown_somebody_must_say_a_size():
    """A default is nobody's word."""
    with pytest.raises(ConfigError, match="does not say how much is free"):
        room(SteadyFiles())
    room(SteadyFiles(), size_was_given=True)


def test_a_file_system_that_counts_nothing_says_nothing(monkeypatch):
    """0 of 0 blocks and 0 of 0 files are no figures; 0 of many are."""
    figures = {"f_bavail": 0, "f_frsize": 4096, "f_blocks": 0, "f_files": 0, "f_favail": 0}
    monkeypatch.setattr(os, "statvfs", lambda _path: type("Figures", (), figures))
    assert (Files().space("/d").free_bytes, Files().space("/d").free_files) == (None, None)
    figures |= {"f_blocks": 10, "f_files": 10}
    assert (Files().space("/d").free_bytes, Files().space("/d").free_files) == (0, 0)


def test_only_a_directory_can_be_probed(tmp_path):
    """Missing ones and files are told apart."""
    read_directory(str(tmp_path))
    with pytest.raises(ConfigError, match="there is no such directory"):
        read_directory(str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match="DIR is empty"):
        read_directory("")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is no directory"):
        read_directory(str(tmp_path / "file"))
