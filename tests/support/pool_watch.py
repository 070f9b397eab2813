"""What an outside observer sees of a pool: the coordinator's views, and the bytes that arrive in a directory."""

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

LOOK_AGAIN_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One look. By job: the interval that it is told, its committed saves, the age of what is not saved."""

    at_s: float
    granted_bytes_per_s: int
    budget_bytes_per_s: int
    written_bytes: int
    interval_s: dict[str, float]
    num_saves: dict[str, int]
    unsaved_s: dict[str, float]

    def saves_since(self, other: "Moment") -> list[int]:
        """How often each job has committed since then."""
        return [number - other.num_saves.get(job, 0) for job, number in self.num_saves.items()]

    def stretch_since(self, other: "Moment") -> list[float]:
        """The interval of each job, in units of the one that it had then."""
        return [interval_s / other.interval_s[job] for job, interval_s in self.interval_s.items()]


class Watch:
    """Looks again and again; `moments` is all that was seen. `check` is called at each look and may raise."""

    def __init__(self, url: str, backing: Path, check: Callable[[], None]) -> None:
        self.moments: list[Moment] = []
        self._url = f"{url.rstrip('/')}/v1/pools/default"
        self._backing = backing
        self._check = check
        self._file_bytes: dict[Path, int] = {}

    def until(self, holds: Callable[[Moment], bool], limit_s: float) -> Moment:
        """The first moment at which `holds`, or the last one within the limit."""
        end_s = time.monotonic() + limit_s
        while not holds(moment := self.look()) and moment.at_s < end_s:
            time.sleep(LOOK_AGAIN_S)
        return moment

    def look(self) -> Moment:
        self._check()
        pool, jobs = _get(self._url), _get(f"{self._url}/jobs")["jobs"]
        moment = Moment(
            at_s=time.monotonic(),
            granted_bytes_per_s=pool["granted_bytes_per_s"],
            budget_bytes_per_s=pool["budget_bytes_per_s"],
            written_bytes=self._written(),
            interval_s={job["name"]: job["plan"]["interval_s"] for job in jobs},
            num_saves={job["name"]: job["num_committed"] for job in jobs},
            unsaved_s={job["name"]: job["unsaved_s"] for job in jobs},
        )
        self.moments.append(moment)
        return moment

    def _written(self) -> int:
        """Bytes that have arrived, those of files that are gone again included."""
        for directory, _, names in os.walk(self._backing):  # passes over what is removed while we look
            for path in (Path(directory, name) for name in names):
                with contextlib.suppress(OSError):
                    self._file_bytes[path] = max(self._file_bytes.get(path, 0), path.stat().st_size)
        return sum(self._file_bytes.values())

    def between(self, begin: Moment, end: Moment) -> list[Moment]:
        """Both included."""
        return [moment for moment in self.moments if begin.at_s <= moment.at_s <= end.at_s]

    def writing_s(self, begin: Moment, end: Moment) -> float:
        """How long bytes arrived in that time: where nobody writes, time is not counted."""
        seen = pairwise(self.between(begin, end))
        return sum(b.at_s - a.at_s for a, b in seen if b.written_bytes > a.written_bytes)


def _get(url: str) -> Any:
    return httpx.get(url, timeout=30).raise_for_status().json()


def table(moments: Iterable[Moment]) -> str:
    """For people who must find out why a test failed: a line for about every two seconds."""
    lines, last_s = ["    at  granted budget MB/s  written MB  intervals s  saves  oldest s"], -1.0
    for moment in moments:
        if moment.at_s >= last_s + 2.0:
            last_s = moment.at_s
            rates = f"{moment.granted_bytes_per_s / 1e6:8.1f} {moment.budget_bytes_per_s / 1e6:6.1f}"
            spread = " ".join(f"{interval_s:.1f}" for interval_s in sorted(moment.interval_s.values()))
            saves = " ".join(map(str, sorted(moment.num_saves.values())))
            oldest_s = max(moment.unsaved_s.values(), default=0.0)
            lines.append(
                f"{moment.at_s:8.1f} {rates} {moment.written_bytes / 1e6:8.0f}  {spread}  {saves}  {oldest_s:.1f}"
            )
    return "\n".join(lines)
