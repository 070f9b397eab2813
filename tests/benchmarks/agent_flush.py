"""How the agent's writer measures up: lease accuracy at the device, stall, flush and restore against plain DCP.

Every ratio is ours / plain over paired rounds whose order alternates: median and a bootstrap 95 % interval of the
per-round ratios. `measure` returns NAME -> {value, unit, runs, low, high, ...}; `run.py` calls it.
"""

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as plain
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

from benchmarks.summary import Result, summary
from rampmeter import dcp
from rampmeter.core.clock import SystemClock
from rampmeter.layout import Root
from rampmeter.manifest import read_manifest
from rampmeter.saving import Saver
from rampmeter.throttle import Throttle

MIB = 1024 * 1024
NUM_ROUNDS = 9
LEASES_BYTES_PER_S = (50_000_000, 200_000_000)
LEASE_S = 13.0
CLOCK = SystemClock()


def measure(
    disk: Path, memory: Path, *, num_rounds: int = NUM_ROUNDS, state_mib: int = 512
) -> dict[str, Result]:
    """All figures; `disk` must be on a block device, `memory` on tmpfs."""
    state = make_state(state_mib)
    leased = [lease_error(disk, lease) for lease in LEASES_BYTES_PER_S]
    results = {"agent.lease_error_ratio": max(leased, key=lambda found: found["value"]) | {"all": leased}}
    results["agent.stall_ratio"] = paired(disk, state, num_rounds, our_stall, plain_stall_documented)
    results["agent.stall_reused_ratio"] = stall_reused(disk, state, num_rounds)
    for name, place in (("tmpfs", memory), ("disk", disk)):
        results[f"agent.flush_ratio.{name}"] = paired(place, state, num_rounds, our_flush, plain_flush)
    warm = restore_ratio(disk, state, num_rounds, is_cold=False)
    cold = restore_ratio(disk, state, num_rounds, is_cold=True)
    results["restore.verified_ratio"] = warm | {"cold": cold}
    return results


def make_state(mib: int, num_tensors: int = 16) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {f"t{i}": torch.randn(mib * MIB // 4 // num_tensors) for i in range(num_tensors)}


@contextmanager
def scratch(place: Path) -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(dir=place, prefix="flush-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def timed(action: Callable[[], Any]) -> float:
    before_s = CLOCK.now()
    action()
    return CLOCK.now() - before_s


Case = Callable[[Path, dict[str, torch.Tensor]], float]


def paired(place: Path, state: dict[str, torch.Tensor], num_rounds: int, ours: Case, theirs: Case) -> Result:
    """Alternate which goes first, warm both up once, and give each round a directory of its own."""
    ratios = []
    for number in range(num_rounds + 1):
        order = [ours, theirs] if number % 2 else [theirs, ours]
        seconds = {}
        for case in order:
            with scratch(place) as directory:
                os.sync()
                seconds[case] = case(directory, state)
        ratios.append(seconds[ours] / seconds[theirs])
    return summary(ratios[1:])


@contextmanager
def warm_saver(directory: Path, state: dict[str, torch.Tensor]) -> Iterator[Saver]:
    root = Root(directory / "root")
    saver = Saver(root, root.claim_attempt(), job="bench")
    saver.warm_up(state)
    assert saver.begin(0, state, unthrottled()).result(120).committed  # a process that writes is there
    shutil.rmtree(root.directory(root.committed_steps()[0]))
    yield saver
    saver.close(60.0)


def unthrottled() -> Throttle:
    throttle = Throttle()
    throttle.set_rate(None)
    return throttle


def our_stall(directory: Path, state: dict[str, torch.Tensor]) -> float:
    """Time that `begin` holds training, with warm buffers and a writer as in a run."""
    with warm_saver(directory, state) as saver:
        before_s = CLOCK.now()
        future = saver.begin(1, state, unthrottled())
        stall_s = CLOCK.now() - before_s
        assert future.result(120).committed
    return stall_s


def plain_stall_documented(directory: Path, state: dict[str, torch.Tensor]) -> float:
    """`dcp.async_save` as its documentation shows it."""
    before_s = CLOCK.now()
    future = plain.async_save(dict(state), checkpoint_id=directory / "plain")
    stall_s = CLOCK.now() - before_s
    future.result()
    return stall_s


def stall_reused(place: Path, state: dict[str, torch.Tensor], num_rounds: int) -> Result:
    """Both sides keep their buffers over all rounds."""
    stager = DefaultStager(StagingOptions(False, False, False, False))
    ratios = []
    with scratch(place) as directory, warm_saver(directory, state) as saver:
        for number in range(num_rounds + 1):
            seconds = {}
            for ours in (True, False) if number % 2 else (False, True):
                before_s = CLOCK.now()
                if ours:
                    future: Any = saver.begin(number, state, unthrottled())
                else:
                    target = directory / f"plain-{number}"
                    future = plain.async_save(dict(state), checkpoint_id=target, async_stager=stager)
                seconds[ours] = CLOCK.now() - before_s
                future.result()
            shutil.rmtree(directory / f"plain-{number}")
            for old in (directory / "root").glob("step-*"):
                shutil.rmtree(old)
            ratios.append(seconds[True] / seconds[False])
    stager.close()
    return summary(ratios[1:])


def our_flush(directory: Path, state: dict[str, torch.Tensor]) -> float:
    """Hashed, checked, pushed out and committed: from the staged state to durable."""
    with warm_saver(directory, state) as saver:
        report = saver.begin(1, state, unthrottled()).result(120)
        assert report.committed
    return report.write_s - report.stall_s


def plain_flush(directory: Path, state: dict[str, torch.Tensor]) -> float:
    """`dcp.save` with its defaults, from a state that is already on the host."""
    return timed(lambda: plain.save(dict(state), checkpoint_id=directory / "plain"))


def restore_ratio(place: Path, state: dict[str, torch.Tensor], num_rounds: int, *, is_cold: bool) -> Result:
    """Verified load against `dcp.load` of the same files; cold = they are not in the page cache."""
    ratios = []
    with scratch(place) as directory, warm_saver(directory, state) as saver:
        report = saver.begin(1, state, unthrottled()).result(120)
        path = directory / "root" / report.directory
        target = {key: torch.zeros_like(value) for key, value in state.items()}
        manifest = read_manifest(path)
        for number in range(num_rounds + 1):
            seconds = {}
            for ours in (True, False) if number % 2 else (False, True):
                if is_cold:
                    forget_files(path)
                if ours:
                    reader = dcp.VerifiedReader(path, manifest)
                    seconds[ours] = timed(lambda reader=reader: verified_load(target, reader))
                else:
                    seconds[ours] = timed(lambda: plain.load(target, checkpoint_id=path))
            ratios.append(seconds[True] / seconds[False])
        assert all(torch.equal(target[key], value) for key, value in state.items())
    return summary(ratios[1:])


def forget_files(directory: Path) -> None:
    """Take these files out of the page cache."""
    for file in directory.iterdir():
        with file.open("rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def verified_load(target: dict[str, torch.Tensor], reader: dcp.VerifiedReader) -> None:
    """What a restore does with tensors that it reads in place."""
    load = dcp.PlannedLoad(target, reader, reader.read_metadata())
    reader.verifier.verify_ranges(load.ranges)
    load.read()


def device_of(directory: Path) -> str:
    """The block device under a directory, by its number."""
    number = directory.stat().st_dev
    return Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve().name


def written_bytes(device: str) -> int:
    """Bytes that the kernel has given to the device so far."""
    for line in Path("/proc/diskstats").read_text().splitlines():
        fields = line.split()
        if fields[2] == device:
            return int(fields[9]) * 512
    raise RuntimeError(f"no device {device} in /proc/diskstats")


class DeviceLog:
    """Samples what reaches the device, ten times a second."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._stop = threading.Event()
        self.samples: list[tuple[float, int]] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "DeviceLog":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        stopping = False
        while not stopping:
            stopping = self._stop.wait(0.1)
            self.samples.append((CLOCK.now(), written_bytes(self._device)))


def lease_error(place: Path, lease_bytes_per_s: int) -> Result:
    """A flush leased for 13 s: mean and largest 5 s window at the device, as errors against the lease.

    `background_bytes_per_s` is what others wrote to the device in the seconds before; it is part of every figure.
    """
    device = device_of(place)
    num_bytes = int(lease_bytes_per_s * LEASE_S)
    state = make_state(num_bytes // MIB)
    with scratch(place) as directory, warm_saver(directory, state) as saver:
        os.sync()
        with DeviceLog(device) as quiet:
            threading.Event().wait(3.0)
        throttle = Throttle()
        ready_at_s: list[float] = []

        def ready(_num_bytes: int) -> None:
            ready_at_s.append(CLOCK.now())
            throttle.set_rate(lease_bytes_per_s)

        with DeviceLog(device) as log:
            report = saver.begin(1, state, throttle, on_first_byte=ready).result(120)
        assert report.committed
    flush_s = report.write_s - report.lead_s
    samples = [sample for sample in log.samples if sample[0] >= ready_at_s[0] - 0.2]
    total = samples[-1][1] - samples[0][1]
    largest = largest_window(samples, 5.0) / 5.0
    return {
        "value": round(abs(total / flush_s / lease_bytes_per_s - 1), 4),
        "unit": "ratio",
        "runs": 1,
        "lease_bytes_per_s": lease_bytes_per_s,
        "low": round(largest_window(samples, 5.0, smallest=True) / 5.0 / lease_bytes_per_s - 1, 4),
        "high": round(largest / lease_bytes_per_s - 1, 4),
        "flush_s": round(flush_s, 2),
        "device_bytes_per_payload_byte": round(total / report.num_bytes, 4),
        "largest_5s_bytes_per_s": int(largest),
        "background_bytes_per_s": int((quiet.samples[-1][1] - quiet.samples[0][1]) / 3.0),
        "load": round(os.getloadavg()[0], 2),
    }


def largest_window(samples: list[tuple[float, int]], width_s: float, *, smallest: bool = False) -> float:
    """Bytes in the fullest (or emptiest) window of that width that lies inside the samples, interpolated."""
    first_s, last_s = samples[0][0] + 1.0, samples[-1][0]
    found = []
    for start_s, start_bytes in samples:
        end_s = start_s + width_s
        if start_s < (first_s if smallest else 0) or end_s > last_s:
            continue
        after = next(index for index, sample in enumerate(samples) if sample[0] >= end_s)
        (low_s, low), (high_s, high) = samples[after - 1], samples[after]
        found.append(low + (high - low) * (end_s - low_s) / (high_s - low_s) - start_bytes)
    return min(found) if smallest else max(found)
