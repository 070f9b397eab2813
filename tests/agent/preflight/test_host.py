"""What the kernel says is left: memory within the control group, files, space; nonsense is unknown."""

import os
import resource
from pathlib import Path
from types import SimpleNamespace

import pytest

from rampmeter.preflight import host

MIB = 1024 * 1024


def _proc(where: Path, available_kib: int, group: str) -> Path:
    """A /proc with this much memory and a process in this control group."""
    (where / "self").mkdir(parents=True)
    (where / "meminfo").write_text(f"MemTotal: 9999999 kB\nMemAvailable: {available_kib} kB\n")
    (where / "self" / "cgroup").write_text(group)
    return where


def _group(where: Path, **files: str) -> None:
    where.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (where / name.replace("__", ".")).write_text(text + "\n")


def test_without_a_limit_it_is_the_memory_of_the_host(tmp_path: Path) -> None:
    """`max` is no limit, nor is the huge number of the first version of control groups."""
    proc = _proc(tmp_path / "proc", 2048, "4:memory:/job\n0::/job\n")
    _group(tmp_path / "cg" / "job", memory__max="max", memory__current="5")
    _group(
        tmp_path / "cg" / "memory" / "job",
        memory__limit_in_bytes=str(2**63 - 4096),
        memory__usage_in_bytes="5",
    )
    assert host.memory_bytes(proc=proc, cgroups=tmp_path / "cg") == 2 * MIB


def test_the_limit_of_the_group_counts_without_its_page_cache(tmp_path: Path) -> None:
    """Of 8 MiB 6 are used, 3 of these by files that nobody needs: 5 are left."""
    proc = _proc(tmp_path / "proc", 10**6, "0::/slurm/job7\n")
    _group(
        tmp_path / "cg" / "slurm" / "job7",
        memory__max=str(8 * MIB),
        memory__current=str(6 * MIB),
        memory__stat=f"anon {3 * MIB}\ninactive_file {3 * MIB}",
    )
    assert host.memory_bytes(proc=proc, cgroups=tmp_path / "cg") == 5 * MIB


def test_a_container_sees_its_group_at_the_top(tmp_path: Path) -> None:
    """The path in /proc is that of the host, the files are not below it; also with the first version."""
    proc = _proc(tmp_path / "proc", 10**6, "4:cpu,memory:/docker/abc\n")
    _group(
        tmp_path / "cg" / "memory",
        memory__limit_in_bytes=str(8 * MIB),
        memory__usage_in_bytes=str(9 * MIB),
    )
    assert host.memory_bytes(proc=proc, cgroups=tmp_path / "cg") == 0


def test_what_is_not_told_is_unknown(tmp_path: Path) -> None:
    """No /proc, no figure."""
    assert host.memory_bytes(proc=tmp_path / "no", cgroups=tmp_path / "no") is None


@pytest.mark.parametrize("num_files", [0, 10**9])
def test_zero_inodes_mean_that_nobody_counts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_files: int
) -> None:
    """Shared file systems say so although there is room; the same with blocks of which there are none in all."""
    told = SimpleNamespace(f_blocks=0, f_bavail=0, f_frsize=4096, f_files=num_files, f_favail=0)
    monkeypatch.setattr(os, "statvfs", lambda _path: told)
    room = host.room_at(tmp_path)
    assert (room.free_bytes, room.free_inodes) == (None, None)


def test_this_host_has_room(tmp_path: Path) -> None:
    """The real figures are there and plausible."""
    room = host.room_at(tmp_path)
    assert room.free_bytes is not None
    assert room.memory_bytes is not None
    assert room.free_bytes > 0 < room.memory_bytes
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert room.free_descriptors is not None
    assert 0 < room.free_descriptors < limit


def test_the_umask_is_read_and_not_set() -> None:
    """Another thread may be creating a file at this moment."""
    before = os.umask(0o027)
    try:
        assert host.umask() == 0o027
    finally:
        os.umask(before)
